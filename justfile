# Everything that must hold before a change lands.
ci:
    bash .ci/run

# The tests.
test:
    cargo test

# The sampler, offline.
sampler:
    cargo run --release -- run jobs/sampler.csv --emulator

# Speed and memory, as ratios within one run.
bench *args:
    cargo bench --bench {{args}}
