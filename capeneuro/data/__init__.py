"""Images, EEG and tables in; features, maps and tables out.

door
    What is wrong with a file, whoever reads it: one line.
people
    Who a person is: files put together by person.
inventory
    What was found at a site: each file a person's, or set aside for a reason.
derivatives
    A site's runs, chosen by BIDS names.
beside
    The files beside a run: confounds, mask, repetition time.
survey
    What a site's folder holds, as a table.
images
    One image opened and read: format, place, values, masks, labels (nibabel).
nifti
    FMRI runs and maps (nibabel, nilearn).
confounds
    A run's table of confounds, read and checked.
cifti
    Series on the surface: means over parcels (nibabel).
cleaning
    A run cleaned in time: confounds, scrubbing, filters (nilearn).
recordings
    EEG recordings found and opened, of any format (MNE-Python, pyxdf).
eeg_names
    Names and units that files give to channels.
eeg_bids
    What lies beside a BIDS recording: events, channels, rate.
eeg_edf
    Headers of EDF and BDF: units, rates, gaps.
eeg_parts
    Recordings that were split over several files.
eeg_channels
    The study's channels in a recording, bad ones interpolated.
eeg_events
    What happened in a recording, by marks, tables and triggers.
eeg
    Recordings to features: event-related potentials, shares of bands.
table_text
    How a table is written in its file: letters, separators, quotes, lines.
tables
    Tables opened, and one person's features of one image.
people_tables
    Tables of people: who has a row, what it says, which file is theirs.
rows
    The rows of a study at one site: who has one, and what it says.
measures
    Names and public bounds of what is measured from time courses.
contrasts
    Public tables of a study of contrasts.
views
    Two views of the same people: found, matched, read.
labels
    Public regions and maps to call components after.
priors
    Public knowledge: priors, maps, second moments.
basis
    The public map between voxels and features.
files
    Features, results and tables on disk; never half written.
"""
