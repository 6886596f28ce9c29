"""The parts of one open store, put together. `opening` begins, `starting` starts the workers, `running`
is what `Store` delegates to, `followed` is a store that another process writes."""
