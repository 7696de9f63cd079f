"""Post-processing of released numbers: nothing here reads a file or sees a site's data.

pca
    The subspace that all sites share: capePCA.
prior
    The deviation of private data from a public second moment.
prior_maps
    Maps of that.
ica
    Joint independent components: capeDJICA; spatial ICA; repeated runs.
updates
    Step rules of joint ICA.
cca
    Directions along which two views of people vary together: capeCCA.
covariance
    Covariance within sites from one released second moment.
tensors
    Components of mixtures and topics: capeAGN.
tensor_parts
    Orthogonal parts of a symmetric tensor, by power iteration.
patterns
    Patterns that people's rows differ by: PCA, and ICA of the released subspace.
distribution
    Shares of people in public bins, and quantiles.
regression
    Linear and logistic regression: capeFM.
folds
    Second moments of folds of units, from one release.
network
    A network of two layers.
probabilities
    How probable a class really is at given log-odds, from released counts.
designs
    Covariates of people, coded by public numbers.
splines
    Smooth curves of a number, with public knots.
outcomes
    Outcomes of people by public numbers.
clip_choice
    The clip of a contrast, by a released histogram of distances.
contrast_pilot
    Where people lie, released before effects.
contrast_forecast
    Standard errors of effects before they are released.
contrasts
    Many outcomes on few covariates: group contrasts over sites.
contrast_fit
    The regression by released moments, and what moves its coefficients.
contrast_effects
    Effects with their precision, tests and sizes.
questions
    Linear questions to released moments, asked afterwards.
charts
    Charts of outcomes over a number, from released moments.
site_effects
    How far outcomes differ between sites, from their released means.
correlations
    Correlations of features from a released second moment, asked afterwards.
model_order
    How many components a released spectrum supports.
shrinkage
    Energies of the data along the noisy directions of a released matrix.
confidence
    Statements about a released model, with intervals of nominal coverage.
verdict
    Words of verdicts, and their table for one study.
verdicts
    Which results of each analysis but components stand above the noise.
component_verdicts
    Which components do: three claims about a map, each with its gate.
halves
    Agreement of released maps with those that no noise would have moved.
smooth_noise
    Second moments and fields of spatially smooth noise.
rotations
    Whether maps are more than one rotation of their subspace.
stand_ins
    Maps of public stand-in people with a study's noise, around its prior and without.
forecast_components
    Noise of a study of components over its signal, from public numbers alone.
forecast_fusion
    Which canonical correlations a fusion will lose, by simulated stand-ins.
forecast_rows
    The same where a person is a row.
metrics
    Scores, with the level that chance reaches.
shown
    The one line that a notebook shows of a result.
"""
