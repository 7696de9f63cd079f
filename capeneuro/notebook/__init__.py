"""The public face in Python: verbs, estimators, results and pictures.

verbs
    One verb an algorithm, on arrays.
sites
    Sites made of arrays in this process, and the budget that they share.
estimators
    Regression and classification over tables, as scikit-learn's estimators.
loading
    The door `load`, to a study file or to results.
study
    A study file from Python: planned and run.
study_results
    What a study found, read back by name.
verdicts
    Which parts of a verb's result are distinguishable from noise.
plot
    What each result of a verb looks like.
"""
