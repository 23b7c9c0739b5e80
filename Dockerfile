# The proxy: relay, wishes, skills, and training by a service. The training server is the target `trainer`.
# docs/operating/docker.md says how to run both; examples/docker has a Compose file.

FROM rust:1.95-bookworm AS proxy-build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --release --package metaclaw --features metaclaw/jemalloc \
    && install -D target/release/metaclaw /out/metaclaw

FROM rust:1.95-bookworm AS trainer-build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo xtask dist trainer --quick \
    && mkdir -p /out \
    && tar -xzf target/dist/metaclaw-trainer-*.tar.gz --strip-components=1 -C /out

FROM debian:bookworm-slim AS base
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 metaclaw \
    && install -d -m 700 -o metaclaw /data /models
USER 1000
ENV METACLAW_HOME=/data METACLAW_CACHE=/models
VOLUME ["/data", "/models"]

FROM base AS trainer
COPY --from=trainer-build /out /opt/metaclaw-trainer
EXPOSE 8000
# METACLAW_API_KEY is required: other containers reach this port.
ENTRYPOINT ["/opt/metaclaw-trainer/metaclaw-trainer", "--host", "0.0.0.0", "--checkpoint-dir", "/data"]

FROM base AS proxy
COPY --from=proxy-build /out/metaclaw /usr/local/bin/metaclaw
# Without METACLAW__PROXY__API_KEY, the proxy listens inside the container only, and its log says so.
ENV METACLAW__PROXY__HOST=0.0.0.0 METACLAW__UI__HOST=0.0.0.0
EXPOSE 30000 30080
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["metaclaw", "status", "--ready"]
ENTRYPOINT ["metaclaw"]
CMD ["start", "--no-wire"]
