"""The names of columns: one name for one quantity in every table.

The ends of an interval of `x` are `x_lower` and `x_upper`, its standard error is
`x_se`. A table about one quantity, such as the ability, has `lower` and `upper` alone.
No name has the level of intervals: it is an attribute of the result, and `level` in the
metadata of the table.
"""

from __future__ import annotations

import re

#: Meanings by name, for each kind of row. "NAME" stands for any name, "K" for a number.
COLUMNS: dict[str, dict[str, str]] = {
    "Subjects": {
        "subject": "name of the subject, such as a model",
        "ability": "ability, in standard deviations of the population",
        "population": "group of subjects whose population of abilities it is of",
        "lower": "lower end of the interval of the ability, or of what the table is of",
        "upper": "its upper end",
        "rank": "rank by ability, 1 for the best",
        "probability_best": "probability of the highest ability",
        "first_group": "first of the groups of subjects that do not differ",
        "last_group": "last of these groups",
        "expected_score": "expected mean response on all items of the fit",
        "accuracy": "observed mean response: of right or wrong ones the share right",
        "accuracy[NAME]": "the same on one benchmark",
        "observed": "number of observed responses",
        "flags": "reasons to look at the row, separated by ;",
        "tied_with": "subjects from which it does not differ significantly",
        "above": "subjects of the fit that are better",
        "family": "family of related subjects",
        "ability_NAME": "ability on a benchmark or a factor",
        "speed": "speed: high where responses are short",
        "ability_speed_correlation": "correlation of their errors",
        "group": "benchmark of an ability",
        "subset_mean": "weighted mean response on the items of a subset",
        "move": "places gained between two rankings",
        "rank_before": "rank in the other ranking",
        "before": "accuracy, or ability, in the other ranking",
        "beyond": "whether `rank_before` is outside the interval of the rank",
        "item_K": "item that contributes most to a move",
        "share_first": "share of replicates in which the subject is first",
        "share_in_top": "share of replicates in which it is among the first",
        "num_items": "items of a test that were given",
        "true_ability": "ability with which responses were simulated",
        "ability_all_items": "ability by the responses to all items",
        "cost": "cost of the items given",
        "probability_passed": "probability of an ability above the mark",
        "passed": "decision on the mark",
        "stopped": "why a test ended",
    },
    "Items": {
        "item": "name of the item",
        "benchmark": "benchmark of the item",
        "discrimination": "slope of the response function",
        "difficulty": "ability at which a response is as likely right as wrong",
        "intercept": "intercept of the response function",
        "lower_asymptote": "chance of a right response by guessing",
        "upper_asymptote": "highest chance of a right response",
        "dispersion": "dispersion of scores",
        "separated": "whether ability separates right from wrong responses",
        "cluster": "cluster of dependent items, or of items of one skill",
        "reversed_scores": "formula of scores of which lower is better",
        "PARAMETER_K": "parameter of one category, threshold, or ability",
        "loading_NAME": "loading on a factor",
        "structure_NAME": "correlation with a factor",
        "communality": "share of variance of all factors",
        "speed_intercept": "mean log length of an average subject",
        "speed_discrimination": "slope of the log length on speed",
        "residual_variance": "variance of the log length given speed",
        "response": "response of a subject to the item",
        "trials": "number of trials of a count",
        "length": "length of the response",
        "metric": "metric of the response",
        "expected": "expected response of a subject to the item",
        "probability_K": "probability of a category",
        "weight": "weight in the mean of a subset, or of a pair in a network",
        "order": "order in which items were chosen",
        "largest_z": "largest penalty, in z, at which the item is kept",
        "kept": "whether it is kept at the level",
        "missing": "subjects without a response",
        "share_missing": "their share",
        "difference": "of two subjects, or of two mean abilities",
        "missing_more_for": "weak or strong subjects, where their share differs",
        "p_value": "p-value, two-sided",
        "q_value": "p-value adjusted by Benjamini and Hochberg",
        "probability": "probability of a cluster",
        "other_item": "second item of a pair",
        "threshold": "logit of a right response with all others wrong, in a network",
        "strength": "sum of the sizes of the weights of an item in a network",
        "expected_influence": "sum of these weights, with their signs",
    },
    "Audit": {
        "p_DEFECT": "p-value of a defect, such as `p_misfit`",
        "q_DEFECT": "the same, adjusted by Benjamini and Hochberg",
        "share_DEFECT": "share of the items of a benchmark with the defect",
        "missing_difference": "`difference`, of the missing responses",
        "guessing": "lower asymptote",
        "feasibility": "upper asymptote",
        "leh": "slope of the response function at the highest ability",
        "information": "Fisher information there",
        "chance_of_strongest": "chance of a right response there",
        "item_rest": "correlation with the mean of the other items",
        "biserial": "the same, biserial",
        "tetrachoric": "the same, tetrachoric",
        "alpha_without": "Cronbach's alpha without the item",
        "infit": "weighted mean squared residual",
        "outfit": "mean squared residual",
        "zh": "standardised log-likelihood of the responses",
        "lz_star": "the same, with the variance that it has at an estimated ability",
        "rmsd": "root mean square of shares right less those of the model",
        "residual_correlation": "of two items, less that of the model",
        "s_x2": "S-X2 statistic of misfit",
        "s_x2_degrees": "its degrees of freedom",
        "surprises": "unexpected responses",
        "surprises_expected": "their expected number",
        "q3": "largest residual correlation with another item",
        "q3_partner": "that item",
        "duplicate_of": "item with the same responses",
        "discriminates": "whether a discrimination of 0 is rejected",
        "items": "number of items",
        "rank_PROPERTY": "rank of a benchmark by a property, 1 for the best",
        "defect": "name of a defect",
        "flagged": "items with the defect",
        "without_signal_mean": "mean number of them without signal",
        "without_signal_most": "largest number",
        "without_signal_any": "share of tables with any",
        "tables": "how tables without signal were made",
    },
    "Rasch, differential functioning, linking": {
        "z": "that difference over its standard error",
        "statistic": "chi-square of the test that an item is the same in all groups",
        "df": "its degrees of freedom",
        "effect": "difference of the chance to be right from the reference, in points",
        "effect_group": "group with that effect",
        "odds_ratio": "odds to be right in the reference group over the focal group's",
        "delta": "-2.35 times its logarithm",
        "ets_class": "A, B or C: negligible, moderate, large",
        "uniform": "chi-square of the group in logistic regression",
        "nonuniform": "of its product with the score",
        "r2": "Nagelkerke's R2 that both add",
        "differs": "whether the item differs at the false discovery rate",
        "discordant": "pairs of which one response is right",
        "level": "ability, or share right",
        "rank_split": "rank with the items that differ free in each group",
        "rank_without": "rank without the items that differ",
        "A": "factor of the ability of a version on the scale of the first",
        "B": "constant of that scale",
        "reference": "version with which `version` is compared, by `common` items",
        "drifts": "whether the item drifts from version to version",
        "direction": "whether it became easier or harder",
    },
    "Stability, factors, skills, subsets": {
        "measure": "measure of agreement",
        "mean": "its mean",
        "run": "number of a replicate",
        "converged": "whether it converged",
        "kendall": "Kendall's tau-b",
        "spearman": "Spearman's correlation",
        "top_overlap": "share of the first that two rankings have in common",
        "left_out": "benchmark or family that is left out",
        "factors": "number of factors",
        "held_out": "mean log-likelihood of held-out responses, in nats",
        "loss": "the same, less than the best",
        "auc": "area under the curve of held-out responses",
        "log_likelihood": "log-likelihood, in nats",
        "jic": "joint information criterion",
        "eigenvalue": "eigenvalue of the correlations of items",
        "eigenvalue_permuted": "its 95 % quantile for permuted responses",
        "clusters": "number of clusters",
        "excluded": "items without variation",
        "entropy": "entropy of the clusters, in nats by item",
        "smallest": "smallest correlation of two clusters",
        "band": "interval of it under one skill",
        "verdict": "one skill or several",
        "rule": "rule by which items are chosen",
        "size": "number of items of a subset",
        "rules_taken": "by `auto`, with their counts",
        "mean_absolute_error": "of predicted full scores",
        "root_mean_square_error": "of predicted full scores",
        "coverage": "share of intervals that contain the full score",
        "width": "their mean width",
        "MEASURE_of_irt": "before the correction by held-out subjects",
        "MEASURE_of_mean": "of the weighted mean response",
        "reference_kendall": "Kendall's tau-b with a reference",
        "variance": "variance of weighted means over subjects",
        "power": "chance to find the difference by one planned comparison",
        "power_of_pairs": "the same of one pair among all",
        "detectable": "smallest difference that is found with the power wanted",
        "detectable_of_pairs": "the same of one pair among all",
        "half_width": "half of the interval of a score",
        "variance_full": "variance of full scores",
    },
    "Reliability": {
        "alpha": "Cronbach's alpha",
        "omega": "McDonald's omega of one factor",
        "lambda2": "Guttman's lambda-2",
        "lambda4": "Guttman's lambda-4, of the best halves",
        "split_half": "mean coefficient of random halves",
        "sd": "standard deviation of scores",
        "sem": "standard error of a score",
        "score": "mean response",
        "kelley": "the score, drawn to the mean by the reliability",
        "component": "variance component: facets of an effect",
        "levels": "number of levels of an effect",
        "share": "share of the sum of the components",
        "coefficient": "generalisability coefficient of a design",
        "dependability": "the same of scores as such",
        "relative_error": "standard error of a comparison",
        "absolute_error": "standard error of a score as such",
        "answers": "answers of a new model",
        "effective_answers": "random answers whose mean would be as exact",
        "text": "claim about subjects",
        "estimate": "difference, or rank, of the claim",
        "standard_error": "its standard error",
        "items_needed": "items that find the estimate with power .8",
        "cost_needed": "cost of those that are missing",
        "corrected": "score of a winner without its luck",
        "halves": "share of random halves in which a claim is true",
        "success": "share of runs that succeed",
        "horizon_50": "human minutes of tasks at which a subject succeeds in half",
        "horizon_80": "the same of four in five",
        "horizon_NAME_marginal": "the same over tasks of that length",
        "horizon_50_least": "the least over all assumptions",
        "horizon_50_most": "the most over all assumptions",
        "assumption": "what an analysis assumes",
        "difficulty_sd": "standard deviation of difficulty given length",
        "ratio_NAME": "of horizons to the chosen ones, a geometric mean",
        "doubling_days": "days in which the best horizon doubles",
    },
}

_ENDING = re.compile(r"_?(se|lower|upper)$")
_PARAMETERS = "discrimination|difficulty|intercept|spacing|step|scoring|offset"
_PARAMETERS += "|category_slope|category_intercept|lower_cut|upper_cut"


def pattern_of(name: str) -> re.Pattern[str]:
    """Returns the names that a name with a place-holder stands for.

    >>> bool(pattern_of("ability_NAME").fullmatch("ability_factor_1"))
    True
    """
    text = re.escape(name).replace("PARAMETER", f"({_PARAMETERS})")
    return re.compile(re.sub("NAME|DEFECT|PROPERTY|MEASURE|K$", ".+", text))


_PATTERNS = {
    pattern_of(name): meaning
    for names in COLUMNS.values()
    for name, meaning in names.items()
    if name != name.lower()
}


def meaning_of(name: str) -> str | None:
    """Returns what a column has; None of one that no table has.

    >>> meaning_of("rank_upper"), meaning_of("accuracy[mmlu]_se"), meaning_of("other")
    ('rank by ability, 1 for the best', 'the same on one benchmark', None)
    """
    texts = name, _ENDING.sub("", name)
    for text in texts:
        for names in COLUMNS.values():
            if text in names:
                return names[text]
    for text in texts:
        for pattern, meaning in _PATTERNS.items():
            if pattern.fullmatch(text):
                return meaning
    return None
