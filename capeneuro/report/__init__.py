"""What people read: words, pictures, pages, and the privacy record.

privacy_record
    Privacy.json and what else stands beside released files.
privacy_schema
    The same record as others check it, and its export.
page
    Reports and private pages, from templates/.
progress
    How far long work is, in a terminal or a log.
sentences
    Results in words.
protection
    What is promised and what left the sites, in words.
disclosure
    The statement of what one carried file tells.
methods_text
    What was done to images, in sentences of a paper.
literature
    Publications, with DOI and BibTeX.
figures
    Figures of a page before they are drawn.
plots
    One function a picture.
charts
    An outcome over a number: its mean, and centiles.
scalps
    EEG channels as waveforms and on the scalp; alone, or beside fMRI.
slices
    Maps in planes through the brain.
viewer
    One viewer for all maps of a page.
maps
    Group maps as NIfTI, and their table.
scores
    What results are compared with.
"""
