# Builds the images of Cornserve: `kubernetes/images/build`, or `docker build --target TARGET .`
#
#   control       gateway, controller and command line, without engines
#   executor-cpu  control, and the engines for CPUs
#   executor-gpu  control, and the engines for NVIDIA GPUs
#
# The layers of an image, from rarely to often changed: system, packages, Cornserve. Each contains only files that depend
# on nothing but its content, so an unchanged layer keeps its digest.

# Needs Python 3.11 with its venv module, on Debian or Ubuntu.
ARG BASE=python:3.11-slim-bookworm

# The tools that build the images.
FROM ${BASE} AS build
# The package index, if it is not the public one.
ARG PIP_INDEX_URL=
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
COPY requirements/build.txt /build/
RUN python3 -m venv /opt/build && /opt/build/bin/python -m pip install --require-hashes -r /build/build.txt
COPY --chmod=755 kubernetes/images/install-packages /opt/build/bin/

# Cornserve without the packages that it requires.
FROM build AS project
COPY pyproject.toml README.md LICENSE /build/cornserve/
COPY cornserve /build/cornserve/cornserve
COPY tasklib /build/cornserve/tasklib
COPY executors /build/cornserve/executors
COPY plan /build/cornserve/plan
COPY planner /build/cornserve/planner
COPY policies /build/cornserve/policies
RUN python3 -m venv --without-pip /opt/cornserve \
    && /opt/build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /build/dist /build/cornserve \
    && /opt/build/bin/python -m pip --python /opt/cornserve install --no-deps --no-compile --prefix /opt/project /build/dist/*.whl \
    && python3 -m compileall -q --invalidation-mode unchecked-hash -s /opt/project -p /opt/cornserve /opt/project/lib

# The common part of all images: an empty environment, a user without privileges, and no program that grants any. All files
# can be read-only; temporary files and caches go to /tmp.
FROM ${BASE} AS runtime
RUN groupadd --gid 10001 cornserve \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin cornserve \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
    && python3 -m venv --without-pip /opt/cornserve
ENV PATH=/opt/cornserve/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp USER=cornserve \
    PYTHONDONTWRITEBYTECODE=1 PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
LABEL org.opencontainers.image.vendor="Cornserve" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="0.1.0"
WORKDIR /tmp
CMD ["cornserve", "--help"]

FROM runtime AS control
ARG UV_DEFAULT_INDEX=
COPY requirements/control.txt /opt/cornserve/requirements.txt
RUN --mount=type=bind,from=build,source=/opt/build,target=/opt/build --mount=type=cache,target=/var/cache/uv \
    /opt/build/bin/install-packages
COPY --from=project /opt/project /opt/cornserve
LABEL org.opencontainers.image.title="cornserve-control" \
    org.opencontainers.image.description="Gateway, controller and command line of Cornserve"
ARG REVISION=unknown
LABEL org.opencontainers.image.revision="${REVISION}"
USER 10001:10001

FROM runtime AS executor-cpu
# libnuma1: vLLM's CPU kernels.
RUN apt-get update && apt-get install --yes --no-install-recommends libnuma1 && rm -rf /var/lib/apt/lists/*
ARG UV_DEFAULT_INDEX=
COPY requirements/executor-cpu.txt /opt/cornserve/requirements.txt
RUN --mount=type=bind,from=build,source=/opt/build,target=/opt/build --mount=type=cache,target=/var/cache/uv \
    /opt/build/bin/install-packages
COPY --from=project /opt/project /opt/cornserve
LABEL org.opencontainers.image.title="cornserve-executor-cpu" \
    org.opencontainers.image.description="Executors of Cornserve for CPUs"
ARG REVISION=unknown
LABEL org.opencontainers.image.revision="${REVISION}"
USER 10001:10001

FROM runtime AS executor-gpu
# gcc and Python's headers, which some base images have: Triton compiles the code that launches its kernels.
RUN apt-get update \
    && headers=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include", "posix_prefix"))') \
    && apt-get install --yes --no-install-recommends gcc libc6-dev $([ -f "$headers/Python.h" ] || echo libpython3-dev) \
    && rm -rf /var/lib/apt/lists/*
# The NVIDIA container runtime provides the driver's libraries. Which GPUs a container sees is up to the device plugin.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
ARG UV_DEFAULT_INDEX=
COPY requirements/executor-gpu.txt /opt/cornserve/requirements.txt
RUN --mount=type=bind,from=build,source=/opt/build,target=/opt/build --mount=type=cache,target=/var/cache/uv \
    /opt/build/bin/install-packages
COPY --from=project /opt/project /opt/cornserve
LABEL org.opencontainers.image.title="cornserve-executor-gpu" \
    org.opencontainers.image.description="Executors of Cornserve for NVIDIA GPUs"
ARG REVISION=unknown
LABEL org.opencontainers.image.revision="${REVISION}"
USER 10001:10001
