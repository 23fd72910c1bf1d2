"""A deterministic simulation of a whole fleet of guards, in one process and under one seed.

    kernel       virtual time, tasks in an order drawn by the seed, threads, processes that die
    plan         what a seed draws: the fleet, its sites, its requests, its faults
    sites        scripted origins, and the fetcher that requests them
    stores       the shared store, with faults before and after the effect of a call
    logs         the audit log, with faults
    disks        the disk of the audit log, and other programs that maintain or remove its files
    schedulers   crawlers that requeue deferred requests, by the machine of `decisions.deferral`
    tiers        the shared store: a model, the real SQLite store, the real Redis scripts
    fleet        one history: processes, their clocks, their crawlers
    oracle       what the sites' answers permit, by an independent implementation
    invariants   what must hold in every history, each with a name
    planted      deliberate faults, one at a time, each of which the simulation must find
    campaign     many histories in a row

For a long run by hand: `python -m tests.simulation --histories 1000000 --seed 0`.
"""
