"""Studies: their steps on files, kind by kind.

steps
    The steps of studies in their order.
study_kind
    What every kind of study does.
registry
    Where the class of each kind is.
tasks
    The tasks of a study: its steps for a stage, site or arm, and their files.
one_process
    Steps of a study in this process: one, or all that are not done yet.
layouts
    Folders of projects whose files are not named as in BIDS.
init_from_folders
    A first study from what the sites' folders hold.
init_networks
    A first study of the connectivity of a template's named networks.
init_contrast
    A first contrast: of networks, or of maps over regions.
init_people
    Covariates of a first study, from the sites' tables of people.
surface
    What a first study says of series on the surface.
bids
    One site's derivatives as a BIDS app would take them.
flow
    What the steps of every kind share.
sites
    A study's sites: read, checked, opened.
ask
    Questions to what a study has released, at no price: tables and pages.
ask_contrasts
    Questions to a study of contrasts.
ask_charts
    Questions for charts of outcomes over a number.
ask_moments
    Questions to a released second moment: other components, correlations.
ask_regression
    Questions to a study of regression: subsets of features, other ridges.
apart
    Nobody is counted twice: equal files are refused.
forecasts
    What a forecast is made of, and what it says.
counts
    How many people and volumes a forecast is of.
decisions
    Decisions that a study leaves open.
costs
    Time, disk and memory that preparing people takes, before and after.
travel
    How much travels between a site and the aggregator.
gate
    What a study will spend, and what that will buy.
components
    Steps of a study of components.
components_forecast
    What noise leaves of a study of components.
around_prior
    Steps of a study of components that starts from public knowledge.
priors
    The prior that a study names, read.
make_prior
    What public people tell, for studies of others.
outcomes
    What public people tell of outcomes, for contrasts of others.
fusion
    Steps of a study of fMRI and EEG.
rows
    What studies of one row a person share.
threads
    How many threads linear algebra has.
site_people
    A site's people, prepared here or by several jobs.
row_scores
    What results over rows are compared with.
timecourse_features
    Rows whose features are measures of time courses.
tensors
    Steps of studies of groups of people: mixtures and topics.
patterns
    Studies of patterns that people differ by.
distribution
    Studies of how numbers are distributed over people.
regression
    Steps of studies that predict a number or a group.
model_file
    The model that a regression gives away, and what it predicts.
network
    Steps of studies of a network.
contrast
    Steps of studies of contrasts between groups.
network_results
    Group maps of named networks, and states with the time spent in them.
contrast_people
    A site's people beside what a study of contrasts says of them in public.
reports
    The report: one page for all stages.
workflow
    What the Snakefile needs to know.
cluster
    Jobs of a cluster that wait, and why.
usage
    Time and memory that a run took.
endings
    What Snakemake and SLURM say last, in a line each.
"""
