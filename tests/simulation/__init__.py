"""A deterministic simulation of a whole fleet of guards, in one process and under one seed.

    kernel       virtual time, tasks in an order drawn by the seed, threads, processes that die
    plan         what a seed draws: the fleet, its sites, its requests, its faults
    sites        scripted origins, and the fetcher that asks them
    stores       the shared store, with faults before and after the effect of a call
    logs         the audit log, with faults
    disks        the disk beneath the audit log, and others that tidy it
    schedulers   crawlers that put requests back, by the machine of `core.deferral`
    tiers        the shared store: a model, the real SQLite store, the real scripts of Redis
    fleet        one history: processes, their clocks, their crawlers
    oracle       what the sites' answers permit, by a reading of its own
    invariants   what must hold in every history, each with a name
    planted      faults planted on purpose, one at a time: the simulation has to find each
    campaign     many histories in a row

Run by hand, for as long as there is time: `python -m tests.simulation --histories 1000000 --seed 0`.
"""
