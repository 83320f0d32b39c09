# A version, or one with a digest: --build-arg PYTHON_IMAGE=python:3.13.9-slim@sha256:...
ARG PYTHON_IMAGE=python:3.13.9-slim
FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
RUN python -m venv /opt/aegish-dist
COPY requirements/run.txt requirements/build.txt requirements/
RUN /opt/aegish-dist/bin/pip install --require-hashes -r requirements/run.txt \
    && pip install --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY aegish_dist aegish_dist
COPY workers workers
RUN python -m hatchling build -t wheel \
    && /opt/aegish-dist/bin/pip install --no-deps dist/*.whl

FROM ${PYTHON_IMAGE}
RUN useradd --create-home --uid 10001 aegish \
    && install -d -o aegish -g aegish -m 700 /var/lib/aegish-dist
COPY --from=build /opt/aegish-dist /opt/aegish-dist
ENV PATH=/opt/aegish-dist/bin:$PATH PYTHONUNBUFFERED=1
USER aegish
WORKDIR /home/aegish
# Most of what runs here is one command that ends; docker-compose.yml checks the rest.
HEALTHCHECK NONE
ENTRYPOINT ["aegish-dist"]
