"""What a site computes of its own people and keeps; released only through a query.

dual_regression
    A person's own time courses and maps.
constrained_ica
    A person's own maps of a template's networks.
network_features
    Links, spectra and states of the time courses of networks.
named_networks
    All that a site computes of one person against a template.
spectra
    Power spectra of a person's time courses.
connectivity
    Correlations between a person's time courses.
quality
    Quality of images before they are cleaned.
measures
    Numbers of a person from their time courses.
network_files
    Files of a person's networks.
components
    People's courses, maps and spectra of released components, as files.
"""
