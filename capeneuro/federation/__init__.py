"""How a site is asked, and how its answer is bounded, noised, masked, charged, summed.

site
    One data holder: what it answers to each task.
requests
    What a site may be asked, and the form of each message.
rules
    What a site refuses from public facts alone.
noise_addition
    The noise that a site adds to its statistic.
ledger
    What a site has spent, on its own disk.
entries
    What a ledger's lines say, by their kind.
index
    What is looked up in a ledger's lines, however many they are.
sums
    What a site remembers of the sums that it answered.
hash_chain
    The lines of a ledger: chained, and remembered in a second place.
registry
    Which people the ledgers of one host hold.
ledger_backup
    How a ledger of private data is begun, moved, merged, backed up and restored.
ledger_export
    The lines of a ledger for somebody who checks them elsewhere.
durable_files
    Files that survive a killed process and a power cut.
messages
    Messages as bytes: no pickle, declared types, a largest size.
gate
    The only door of a site: signed requests in, sealed answers out.
envelope
    The aggregator's side of it: requests signed, answers read.
manifest
    What all parties of a study agreed on and signed.
vouching
    What a site signs of a record of privacy.
folder
    Requests and answers as files that people carry.
transport
    The sites seen from the aggregator; sites in this process.
secagg
    Sums that reveal nothing but themselves (a room of its own).
rounds
    One release at the aggregator, whoever is lost on the way.
mechanism
    How a query is answered in each arm.
"""
