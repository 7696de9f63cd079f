"""Each party on its own host: over NVIDIA FLARE, or by files that people carry.

parties
    A site that waits, an aggregator that drives.
joining
    What all parties agree on before anything is asked: manifest and approvals.
answering
    A site that answers for its manifest, however requests come.
by_files
    A study whose requests and answers are carried as files.
kit
    Kits of the parties: made, made safe, checked.
reach
    What answers at the server's address.
host
    What a site's machine must have for a study: line, clock, disks, locks, memory.
installation
    What is installed on a machine, for a question to others: no data.
renewal
    A renewed certificate put into a kit, in one step.
daemon
    A kit's FLARE process, started again and stopped whole, for all its studies.
running
    Studies that run with a kit, and whose job it is.
controller
    The sites of a study behind the engine.
site_status
    What a site's operator sees while a study runs.
parts
    Long messages in parts, for slow lines.
named_arrays
    Large arrays of requests, which travel once to each site.
progress
    How far a long message is.
heartbeat
    Who is there: beats between the processes of a job.
client
    A site's FLARE process, cut down to what a study needs.
"""
