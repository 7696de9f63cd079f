"""What people read: words, pictures, pages, and the privacy record.

record
    Privacy.json and what else stands beside released files.
page
    Reports and private pages, from templates/.
words
    Results in words.
plots
    One function a picture.
maps
    Group maps as NIfTI, and their table.
scores
    What results are compared with.
"""
