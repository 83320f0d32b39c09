"""The Compose file: valid, closed to the outside, and without secrets."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from aegish_dist.models.catalog import Catalog
from aegish_dist.pipeline.simulate import catalog_for
from aegish_dist.settings import Settings

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ENVIRONMENTS = {name: service.get("environment", {}) for name, service in SERVICES.items()}
WORKERS = ("worker", "aggregator")
MONITORING = ("exporter", "prometheus", "grafana")
LONG_RUNNING = {"postgres", "redis", "simulator", "relay", *WORKERS, *MONITORING}
OPTIONAL = {"simulator": "simulator", "relay": "simulator"} | dict.fromkeys(
    MONITORING, "monitoring"
)
REQUIRED_VARIABLE = re.compile(r"\$\{AEGISH_DIST_[A-Z]+_PASSWORD:\?[^}]+\}")


def test_compose_file_follows_the_specification() -> None:
    validate = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run(
        [*validate, str(COMPOSE_FILE)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_ports_are_published_on_loopback_only() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_every_password_comes_from_the_environment() -> None:
    """Compose refuses to start without it; no argument has one, which every user could read."""
    secrets = {
        str(value)
        for environment in ENVIRONMENTS.values()
        for name, value in environment.items()
        if name.endswith(("PASSWORD", "AUTH", "_URL")) and value is not None
    }
    references = re.findall(r"\$\{\w*PASSWORD[^}]*\}", COMPOSE_FILE.read_text())
    assert len(secrets) == 8
    assert all(REQUIRED_VARIABLE.search(secret) for secret in secrets)
    assert all(REQUIRED_VARIABLE.fullmatch(reference) for reference in references)
    for service in SERVICES.values():
        assert "PASSWORD" not in f"{service.get('command')} {service.get('healthcheck')}"


def test_workers_have_the_catalog_of_the_command_line() -> None:
    """They call only what their own catalog allows; with another one the simulator would not do."""
    shared = SERVICES["worker"]["volumes"]
    assert SERVICES["cli"]["volumes"][: len(shared)] == shared
    for name in ("AEGISH_DIST_CATALOG", "OPENAI_BASE_URL"):
        assert ENVIRONMENTS["worker"][name] == ENVIRONMENTS["cli"][name]


def test_commands_read_and_write_the_folder_of_the_file() -> None:
    """As its owner, whom `make fleet` names; the owner's password of the database is out of sight."""
    cli = SERVICES["cli"]
    assert cli["user"] == "${AEGISH_DIST_USER:-10001:10001}"
    assert cli["working_dir"] == "/project"
    assert cli["volumes"][-2:] == [".:/project", "/dev/null:/project/.env:ro"]
    assert cli["environment"]["HOME"] in cli["tmpfs"]
    assert cli["environment"]["XDG_CACHE_HOME"].startswith("/tmp/")
    others = {name: service.get("volumes", []) for name, service in SERVICES.items()}
    assert [name for name, volumes in others.items() if ".:/project" in volumes] == ["cli"]
    created = re.search(r"useradd .*--uid (\d+)", (ROOT / "Dockerfile").read_text())
    assert created is not None
    assert created[1] == "10001"


def test_keys_are_passed_by_name_to_what_calls_models() -> None:
    variables = {provider.key_variable for provider in Catalog.load().providers.values()}
    keys = COMPOSE["x-keys"]
    assert keys == dict.fromkeys(variables - {"", None})
    assert ENVIRONMENTS["worker"].items() >= keys.items()
    holders = {name for name, each in ENVIRONMENTS.items() if keys.keys() & each.keys()}
    assert holders == {"worker", "cli"}


def test_redis_keeps_its_messages() -> None:
    *_, script = SERVICES["redis"]["command"]
    flags = "--appendonly yes --maxmemory-policy noeviction --list-compress-depth 1"
    assert f"redis-server {flags} - <<END\n" in script
    assert "\nrequirepass $$REDISCLI_AUTH\nEND\n" in script


def test_images_are_pinned() -> None:
    images = {service["image"] for service in SERVICES.values()} - {"aegish-dist"}
    base = re.findall(r"^ARG PYTHON_IMAGE=(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    pinned = r"\$\{AEGISH_DIST_\w+_IMAGE:-[\w/]+:v?\d+\.\d+(\.\d+)?(-alpine)?\}"
    assert len(images) == 5
    assert all(re.fullmatch(pinned, image) for image in images)
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim", base[0])


def test_services_write_to_volumes_and_say_whether_they_live() -> None:
    assert [name for name, service in SERVICES.items() if not service.get("read_only")] == []
    assert all("/tmp" in service["tmpfs"] for service in SERVICES.values())
    assert {name for name, service in SERVICES.items() if "healthcheck" in service} == LONG_RUNNING
    assert {n: SERVICES[n].get("profiles") for n in OPTIONAL} == {
        n: [p] for n, p in OPTIONAL.items()
    }


def test_only_migrations_own_the_database() -> None:
    """Workers and commands have roles with rights on data, given before they start.

    What writes scores calls no guard.
    """
    users = {
        name: str(each["AEGISH_DIST_DATABASE_URL"]).split("/")[2].split(":")[0]
        for name, each in ENVIRONMENTS.items()
        if "AEGISH_DIST_DATABASE_URL" in each
    }
    others = dict.fromkeys(("cli", "exporter", "aggregator"), "aegish_app")
    assert users == {"migrate": "aegish", "worker": "aegish_worker"} | others
    assert SERVICES["migrate"]["command"] == ["db", "upgrade"]
    assert SERVICES["roles"]["depends_on"] == {
        "migrate": {"condition": "service_completed_successfully"}
    }


@pytest.mark.parametrize("name", WORKERS)
def test_workers_can_be_many_and_may_finish_their_calls(name: str) -> None:
    """Nothing is unique on the host; each starts after the migration, with a broker that answers."""
    worker = SERVICES[name]
    assert not {"container_name", "ports", "hostname", "network_mode"} & worker.keys()
    grace_s = float(worker["environment"]["AEGISH_DIST_SHUTDOWN_GRACE_S"])
    assert grace_s == Settings().shutdown_grace_s
    assert float(worker["stop_grace_period"].removesuffix("s")) > grace_s
    assert worker["depends_on"] == {
        "roles": {"condition": "service_completed_successfully"},
        "redis": {"condition": "service_healthy"},
    }
    assert name == "worker" or worker["command"][:2] == ["worker", "--aggregate-only"]


def test_simulated_catalog_is_current() -> None:
    written = tomllib.loads((ROOT / "deploy" / "simulated.toml").read_text())
    assert written == tomllib.loads(catalog_for("http://simulator:8400"))


@pytest.mark.parametrize("name", [*WORKERS, "exporter"])
def test_a_process_says_itself_whether_it_lives(name: str) -> None:
    """The health check asks for the page that is served on the port of the measures."""
    variables = ENVIRONMENTS[name]
    assert variables["AEGISH_DIST_METRICS_HOST"] == "0.0.0.0"
    assert variables["AEGISH_DIST_METRICS_PORT"] == "9464"
    assert "http://127.0.0.1:9464/healthz" in SERVICES[name]["healthcheck"]["test"][-1]


def test_prometheus_scrapes_what_runs() -> None:
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    targets = [each for job in config["scrape_configs"] for each in job["dns_sd_configs"]]
    assert {name for each in targets for name in each["names"]} == {*WORKERS, "exporter"}
    assert {each["port"] for each in targets} == {9464}
    assert "./deploy/prometheus:/etc/prometheus:ro" in SERVICES["prometheus"]["volumes"]


def test_grafana_is_read_only_and_finds_what_is_provisioned() -> None:
    """Visitors look without a password, and there is nothing to log in to."""
    assert ENVIRONMENTS["grafana"].items() >= {
        ("GF_AUTH_ANONYMOUS_ORG_ROLE", "Viewer"),
        ("GF_AUTH_DISABLE_LOGIN_FORM", "true"),
        ("GF_AUTH_BASIC_ENABLED", "false"),
        ("GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION", "true"),
    }
    folder = ROOT / "deploy" / "grafana" / "provisioning"
    boards = yaml.safe_load((folder / "dashboards" / "aegish-dist.yml").read_text())
    sources = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())
    path = boards["providers"][0]["options"]["path"]
    assert f"./deploy/grafana/dashboards:{path}:ro" in SERVICES["grafana"]["volumes"]
    (source,) = sources["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
