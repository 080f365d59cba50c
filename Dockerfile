# The server in a container. deploy/compose.yaml runs it with restrictions.
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip wheel --no-cache-dir --wheel-dir /wheels '/src[server]'

FROM python:3.12-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels 'ingot-llm[server]'
ENV INGOT_CACHE=/tmp/ingot
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=10s --start-period=120s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=5)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["ingot", "serve", "--host", "0.0.0.0", "--port", "8080"]
