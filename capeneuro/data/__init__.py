"""Images, EEG and tables in; features, maps and tables out.

door
    What is wrong with a file, whoever reads it: one line.
derivatives
    A site's runs, chosen by BIDS names, and the files beside a run.
survey
    What a site's folder holds, as a table.
images
    One image opened and read: format, place, values, masks, labels (nibabel).
nifti
    FMRI runs and maps (nibabel, nilearn).
cleaning
    A run cleaned in time: confounds, scrubbing, filters (nilearn).
recordings
    EEG recordings found and opened, of any format (MNE-Python, pyxdf).
eeg
    Recordings to features: event-related potentials, shares of bands.
tables
    A person's features from a row of a table or from one image.
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
