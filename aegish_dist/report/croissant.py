"""A dataset's metadata as Croissant 1.1, which dataset loaders and search engines read."""

import re
from collections.abc import Iterable
from typing import Any

from aegish_dist.core.sample import Dataset
from aegish_dist.core.text import printable_json
from aegish_dist.report.dataset_facts import (
    COLUMNS,
    ColumnFact,
    DataFile,
    citation,
    description,
    spdx_id,
)

_TERMS = (
    *("arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field"),
    *("fileProperty", "fileObject", "fileSet", "format", "includes", "isArray", "isLiveDataset"),
    *("jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex"),
    *("repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
)
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{term: f"cr:{term}" for term in _TERMS},
}
"""The whole vocabulary of the specification: loaders warn of any other context."""
_RECORDS = "samples"
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def croissant(dataset: Dataset, file: DataFile) -> str:
    """Return the metadata of a dataset as JSON-LD, in ASCII.

    Keys of the samples' metadata become fields of their own where they are plain names.
    """
    document = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": dataset.name,
        "description": description(dataset),
        "identifier": f"sha256:{dataset.fingerprint}",
        **_licence(dataset),
        "citeAs": citation(dataset),
        "isLiveDataset": False,
        "keywords": ["shell", "security", "command classification"],
        "distribution": [_distribution(file)],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": _RECORDS,
                "name": _RECORDS,
                "description": "One record per labelled shell command.",
                "field": [*_fields(COLUMNS, file), *_metadata(dataset, file)],
            }
        ],
    }
    return printable_json(document) + "\n"


def _licence(dataset: Dataset) -> dict[str, str]:
    if not dataset.licence:
        return {}
    known = spdx_id(dataset.licence)
    return {"license": f"https://spdx.org/licenses/{known}.html" if known else dataset.licence}


def _distribution(file: DataFile) -> dict[str, str]:
    return {
        "@type": "cr:FileObject",
        "@id": file.name,
        "name": file.name,
        "contentUrl": file.name,
        "contentSize": f"{file.size} B",
        "encodingFormat": "application/jsonlines",
        "sha256": file.sha256,
    }


def _fields(columns: Iterable[ColumnFact], file: DataFile) -> list[dict[str, Any]]:
    return [
        _field(column.name, column.meaning, {"column": column.name}, file)
        for column in columns
        if column.name != "metadata"
    ]


def _metadata(dataset: Dataset, file: DataFile) -> list[dict[str, Any]]:
    keys = sorted({key for sample in dataset.samples for key in sample.metadata})
    return [
        _field(
            f"metadata.{key}",
            f"The value of '{key}' among the metadata of a sample; null where it has none.",
            {"column": "metadata"},
            file,
            {"jsonPath": f"$.{key}"},
        )
        for key in keys
        if _PLAIN_KEY.fullmatch(key)
    ]


def _field(
    name: str,
    meaning: str,
    extract: dict[str, str],
    file: DataFile,
    transform: dict[str, str] | None = None,
) -> dict[str, Any]:
    source: dict[str, Any] = {"fileObject": {"@id": file.name}, "extract": extract}
    if transform is not None:
        source["transform"] = transform
    return {
        "@type": "cr:Field",
        "@id": f"{_RECORDS}/{name}",
        "name": name,
        "description": meaning,
        "dataType": "sc:Text",
        "source": source,
    }
