"""Inside evaluation harnesses: adaptive tests while a model is evaluated.

`irtjax.harness.inspect` is for Inspect and `irtjax.harness.lm_eval` for
lm-evaluation-harness; `frames` reads Inspect's data frames. A saved fit is the item
bank. Importing these modules imports no harness.
"""
