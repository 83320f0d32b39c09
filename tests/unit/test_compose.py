"""The Compose file: valid, closed to the outside, and without secrets."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from aegish_dist.models import Catalog
from aegish_dist.pipeline.simulate import catalog_for
from aegish_dist.settings import Settings

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WORKERS = ("worker", "aggregator")
MONITORING = ("exporter", "prometheus", "grafana")
LONG_RUNNING = {"postgres", "redis", "simulator", "relay", *WORKERS, *MONITORING}
REQUIRED_VARIABLE = re.compile(r"\$\{AEGISH_DIST_[A-Z]+_PASSWORD:\?[^}]+\}")


def test_compose_file_follows_the_specification() -> None:
    """The published schema of Compose files accepts it."""
    validate = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]

    checked = subprocess.run(
        [*validate, str(COMPOSE_FILE)], capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_ports_are_published_on_loopback_only() -> None:
    """Whatever is published is bound to 127.0.0.1."""
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]

    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_every_password_comes_from_the_environment() -> None:
    """Where a password belongs there is a variable, and Compose refuses to start without it."""
    environments = [service.get("environment", {}) for service in SERVICES.values()]
    secrets = {
        str(value)
        for environment in environments
        for name, value in environment.items()
        if name.endswith(("PASSWORD", "AUTH", "_URL")) and value is not None
    }
    references = re.findall(r"\$\{\w*PASSWORD[^}]*\}", COMPOSE_FILE.read_text())

    assert len(secrets) == 6
    assert all(REQUIRED_VARIABLE.search(secret) for secret in secrets)
    assert all(REQUIRED_VARIABLE.fullmatch(reference) for reference in references)


def test_workers_have_the_catalog_of_the_command_line() -> None:
    """They call only what their own catalog allows; with another one the simulator would not do."""
    worker, cli = SERVICES["worker"], SERVICES["cli"]

    assert worker["volumes"] == cli["volumes"]
    for name in ("AEGISH_DIST_CATALOG", "OPENAI_BASE_URL"):
        assert name in worker["environment"]
        assert worker["environment"][name] == cli["environment"][name]


def test_keys_are_passed_by_name() -> None:
    """Every key variable of the packaged catalog is passed on, without a value in the file."""
    variables = {provider.key_variable for provider in Catalog.load().providers.values()} - {
        "",
        None,
    }

    assert COMPOSE["x-keys"] == dict.fromkeys(sorted(variables))
    assert SERVICES["worker"]["environment"].items() >= COMPOSE["x-keys"].items()


def test_redis_keeps_its_messages() -> None:
    """The broker asks for a password, writes what it holds to disk, and evicts nothing."""
    *_, script = SERVICES["redis"]["command"]

    flags = "--appendonly yes --maxmemory-policy noeviction --list-compress-depth 1"
    assert f"redis-server {flags} - <<END\n" in script
    assert "\nrequirepass $$REDISCLI_AUTH\nEND\n" in script


def test_no_password_stands_in_an_argument() -> None:
    """Every user of a host can read the arguments of its processes."""
    arguments = [str(SERVICES[name].get("command")) for name in SERVICES]
    arguments += [str(service.get("healthcheck")) for service in SERVICES.values()]

    assert not [text for text in arguments if "PASSWORD" in text]


def test_images_are_pinned() -> None:
    """Each image names a version to its last digit, and a variable takes one with a digest."""
    images = {service["image"] for service in SERVICES.values()} - {"aegish-dist"}
    base = re.findall(r"^ARG PYTHON_IMAGE=(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)

    assert len(images) == 5
    assert all(
        re.fullmatch(r"\$\{AEGISH_DIST_\w+_IMAGE:-[\w/]+:v?\d+\.\d+(\.\d+)?(-alpine)?\}", i)
        for i in images
    )
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim", base[0])


def test_containers_write_to_volumes_only() -> None:
    """Every root file system is read-only; what has to be written goes to memory or to a volume."""
    assert [name for name, service in SERVICES.items() if not service.get("read_only")] == []
    assert all("/tmp" in service["tmpfs"] for service in SERVICES.values())


def test_only_migrations_own_the_database() -> None:
    """Workers and commands use a role that has rights on data, which is there before they start."""
    users = {
        name: str(service["environment"]["AEGISH_DIST_DATABASE_URL"]).split("/")[2].split(":")[0]
        for name, service in SERVICES.items()
        if "AEGISH_DIST_DATABASE_URL" in service.get("environment", {})
    }

    assert users == {"migrate": "aegish"} | dict.fromkeys(
        (*WORKERS, "cli", "exporter"), "aegish_app"
    )
    assert SERVICES["migrate"]["depends_on"] == {
        "roles": {"condition": "service_completed_successfully"}
    }


def test_keys_go_to_what_calls_models() -> None:
    """No other service has the key of a provider."""
    keys = COMPOSE["x-keys"].keys()
    holders = {name for name, each in SERVICES.items() if keys & each.get("environment", {}).keys()}

    assert holders == {"worker", "cli"}


@pytest.mark.parametrize("name", WORKERS)
def test_worker_scales(name: str) -> None:
    """Nothing about the worker is unique on its host."""
    assert not {"container_name", "ports", "hostname", "network_mode"} & SERVICES[name].keys()


@pytest.mark.parametrize("name", WORKERS)
def test_worker_may_finish_its_calls(name: str) -> None:
    """The time until a worker is killed is longer than the one it takes to stop by itself."""
    worker = SERVICES[name]
    grace_s = float(worker["environment"]["AEGISH_DIST_SHUTDOWN_GRACE_S"])

    assert grace_s == Settings().shutdown_grace_s
    assert float(worker["stop_grace_period"].removesuffix("s")) > grace_s


@pytest.mark.parametrize("name", WORKERS)
def test_worker_starts_after_the_migration(name: str) -> None:
    """A worker meets a migrated database and a broker that answers."""
    assert SERVICES["migrate"]["command"] == ["db", "upgrade"]
    assert SERVICES[name]["depends_on"] == {
        "migrate": {"condition": "service_completed_successfully"},
        "redis": {"condition": "service_healthy"},
    }


def test_long_running_services_are_checked() -> None:
    """A service that keeps running has a health check; one that ends by itself has none."""
    assert {name for name, service in SERVICES.items() if "healthcheck" in service} == LONG_RUNNING


@pytest.mark.parametrize("name", ["simulator", "relay"])
def test_simulator_is_optional(name: str) -> None:
    """Nothing simulated runs unless it is asked for."""
    assert SERVICES[name]["profiles"] == ["simulator"]


def test_simulated_catalog_is_current() -> None:
    """The catalog of the simulator profile is what the simulator would write for its address."""
    written = tomllib.loads((ROOT / "deploy" / "simulated.toml").read_text())

    assert written == tomllib.loads(catalog_for("http://simulator:8400"))


def test_the_aggregator_calls_no_model() -> None:
    """It is a worker of aggregations alone."""
    assert SERVICES["aggregator"]["command"][:2] == ["worker", "--aggregate-only"]


@pytest.mark.parametrize("name", [*WORKERS, "exporter"])
def test_a_process_says_itself_whether_it_lives(name: str) -> None:
    """The health check asks for the page that is served on the port of the measures."""
    variables = SERVICES[name]["environment"]
    port = variables["AEGISH_DIST_METRICS_PORT"]

    assert variables["AEGISH_DIST_METRICS_HOST"] == "0.0.0.0"
    assert port == "9464"
    assert f"http://127.0.0.1:{port}/healthz" in SERVICES[name]["healthcheck"]["test"][-1]


@pytest.mark.parametrize("name", MONITORING)
def test_monitoring_is_optional(name: str) -> None:
    """None of it runs unless it is asked for, and none has a key."""
    assert SERVICES[name]["profiles"] == ["monitoring"]
    assert not COMPOSE["x-keys"].keys() & SERVICES[name].get("environment", {}).keys()


def test_prometheus_scrapes_what_runs() -> None:
    """Its targets are services that serve measures, at their port, and it has the rules."""
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    targets = [each for job in config["scrape_configs"] for each in job["dns_sd_configs"]]

    assert {name for each in targets for name in each["names"]} == {*WORKERS, "exporter"}
    assert {each["port"] for each in targets} == {9464}
    assert "./deploy/prometheus:/etc/prometheus:ro" in SERVICES["prometheus"]["volumes"]


def test_grafana_is_read_only_to_all() -> None:
    """Visitors look without a password, and there is nothing to log in to."""
    settings = SERVICES["grafana"]["environment"]

    assert settings["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert settings["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert settings["GF_AUTH_BASIC_ENABLED"] == "false"
    assert settings["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"


def test_grafana_finds_what_is_provisioned() -> None:
    """Folders and addresses of the provisioning are those of the services."""
    folder = ROOT / "deploy" / "grafana" / "provisioning"
    boards = yaml.safe_load((folder / "dashboards" / "aegish-dist.yml").read_text())
    sources = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())
    path = boards["providers"][0]["options"]["path"]

    assert f"./deploy/grafana/dashboards:{path}:ro" in SERVICES["grafana"]["volumes"]
    assert sources["datasources"][0]["url"] == "http://prometheus:9090"
