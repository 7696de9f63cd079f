"""Every key of study files and site files: its meaning, its default, its rules.

load
    Reads and checks a file; tells the kind of a study.
study
    Keys of every study.
site
    Keys of a site's own file.
sections
    Sections that several kinds of study have.
eeg
    What a study says of recordings of EEG and their features.
components
    Studies of components: PCA, then ICA.
fusion
    Studies of fMRI and EEG of the same people.
rows
    What studies of one row a person share.
tensors
    Studies of groups of people: mixtures and topics.
patterns
    Studies of patterns that people's rows differ by: PCA and ICA.
distribution
    Studies of how numbers are distributed over people.
regression
    Studies that predict a number or a group.
network
    Studies of a network that tells two groups apart.
contrast
    Studies of what outcomes differ by between groups.
stages
    Studies of several stages with one promise.
scaffold
    Files of a new study, with the keys that must be decided.
explain
    What each key of a file is: its form, its default, its meaning.
names
    Names of people and files: one name for one person, however written.
errors
    A YAML file as a model; its errors, one line each.
"""
