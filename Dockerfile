# The server alone, from the pinned and hashed files of constraints-runtime.txt.
#
#     docker build -t stepplane .
#     docker run --rm -p 127.0.0.1:7777:7777 -e STEPPLANE_OPERATOR_TOKEN=... -v stepplane:/data stepplane
#
# Without STEPPLANE_OPERATOR_TOKEN it refuses to start: inside a container it cannot listen on loopback.

FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python -m venv /opt/stepplane
# Before the sources, so that an edit of them does not install the dependencies again.
COPY constraints-runtime.txt ./
RUN /opt/stepplane/bin/pip install --no-deps --require-hashes --requirement constraints-runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY app ./app
COPY migrations ./migrations
RUN /opt/stepplane/bin/pip install --no-deps --no-build-isolation . \
    && /opt/stepplane/bin/pip check

FROM python:3.11-slim
RUN useradd --uid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin stepplane \
    && install -d -o stepplane -g stepplane -m 700 /data /data/files
COPY --from=build /opt/stepplane /opt/stepplane
ENV PATH=/opt/stepplane/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    STEPPLANE_DATABASE_URL=sqlite:////data/stepplane.db \
    STEPPLANE_LOG_FORMAT=json
USER stepplane
WORKDIR /data
VOLUME /data
EXPOSE 7777
# The slim image has no curl; urlopen raises, so exits 1, on a refused connection and on any status from 400 on.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:7777/v1/healthz', timeout=3)"]
# The port is fixed in here, where the health check looks for it; publish it under any other.
CMD ["stepplane", "serve", "--host", "0.0.0.0", "--port", "7777"]
