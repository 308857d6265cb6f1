"""A plan in plain sentences: which road and why, the sizes that matter to it, memory and time."""

from dataclasses import dataclass

from qsgp.kernels import AUTO, ROUGH
from qsgp.likelihoods import BY_NAME as LIKELIHOODS
from qsgp.likelihoods import LabelsAsNumbers
from qsgp.memory import Need, readable
from qsgp.paper.settings import PAPER
from qsgp.training.options import LEARN_POINTS, LEAST_ROWS, MOST_FEATURES, SECONDS, SMALL, Options, Sizes
from qsgp.training.safeguard import judges
from qsgp.training.sizes import (
    CLOSED_FORM,
    FEATURES_SOLVED,
    ROWS,
    STEPS,
    WEIGHTS,
    Shape,
    functions,
    rows_held,
    shares_features,
)


@dataclass(frozen=True)
class Decision:
    """What was decided, and from what."""

    shape: Shape
    options: Options
    first: str  # the road before memory was looked at
    wanted: Sizes  # the sizes before that
    wanted_need: Need
    sizes: Sizes
    need: Need
    held_out: int
    named: list[str]  # settings of steps that are set
    honoured: list[str]  # those of them that the road by blocks of rows follows
    keep: bool

    @property
    def moved(self) -> bool:
        """Memory has led to another road."""
        return self.sizes.road != self.first


def sentences(decision: Decision) -> list[str]:
    """In the order in which a person asks: what and why, on how many rows, at what cost."""
    found = [_why(decision), *_streamed(decision), *_labels(decision), *_smaller(decision), *_without_effect(decision)]
    found += [*_target_map(decision), *_identifiers(decision), *_sizes(decision), *_ranks(decision)]
    return [*found, *_hyperparameters(decision), *_held_out(decision), *_noise(decision), *_cost(decision)]


def _identifiers(decision: Decision) -> list[str]:
    count = len(decision.options.levels)
    if not count:
        return []
    which = "an identifier" if count == 1 else f"{count} identifiers"
    return [f"Every level of {which} has an effect of its own, whose variance is learned from all rows."]


# --- which road, and why ----------------------------------------------------------------------------------------


def _subject(road: str, options: Options) -> str:
    if road in (CLOSED_FORM, ROWS):
        return "the exact GP" if LIKELIHOODS[options.likelihood].fixed_sites else "the GP"
    return f"the weights of {_functions(options)}" if road != STEPS else _functions(options)


_VERBS = {
    CLOSED_FORM: "is solved in closed form",
    ROWS: "is solved by blocks of rows",
    WEIGHTS: "are solved from sums over the rows",
    FEATURES_SOLVED: "are solved by conjugate gradients",
    STEPS: "are trained by steps",
}


def _way(road: str, options: Options) -> str:
    return f"{_subject(road, options)} {_VERBS[road]}"


def _functions(options: Options) -> str:
    if options.relevance:
        return "kernel functions at the training rows"
    return {"inducing": "inducing points", "grid": "functions on a grid"}.get(options.basis, "Fourier features")


def _why(decision: Decision) -> str:
    n, options, road = decision.shape.n, decision.options, decision.first
    exact = f"{_subject(ROWS, options)} {'in closed form' if n <= SMALL or decision.keep else 'by blocks of rows'}"
    by_default = decision.keep or road in (CLOSED_FORM, ROWS)
    causes = _listed(_causes(decision))
    if decision.moved:
        what = exact if by_default else f"solving for {_subject(road, options)}"
        found = f"{what} {_too_much(decision)}, so {_way(decision.sizes.road, options)}"
        return _sentence(found) if by_default else f"{causes}, but {found}."
    if decision.keep:
        return _sentence(f"{_way(road, options)}: the first portions are kept, so that scales can be learned again")
    if by_default:
        than = f"not more than {SMALL:,}" if road == CLOSED_FORM else f"more than the {SMALL:,} of the closed form"
        return _sentence(f"{_way(road, options)}, because {_rows(n)} are {than}")
    return f"{causes}, so {_way(road, options)} instead of {exact}."


def _streamed(decision: Decision) -> list[str]:
    """What is held of rows that are read from the disk."""
    if not decision.shape.streamed:
        return []
    held, n = rows_held(decision.sizes, decision.shape, decision.options), decision.shape.n
    found = [
        f"The rows would take more than max_memory, so they are streamed: one pass finds scales, and {held:,} of "
        f"{_rows(n)}, drawn uniformly, are held in memory."
    ]
    if decision.sizes.road == STEPS and held < n:
        found.append(
            "They are a window: after a step its oldest rows make room for the next ones, read in the background."
        )
    if decision.sizes.road == WEIGHTS and held < n:
        found.append("Further passes read the others in the background.")
    return found


def _too_much(decision: Decision) -> str:
    limit = readable(decision.options.max_memory)
    return f"would take {readable(decision.wanted_need.total)}, which is more than max_memory ({limit})"


def _causes(decision: Decision) -> list[str]:
    """What is said that leads away from the exact GP."""
    options = decision.options
    if options.relevance:
        return ["A relevance vector machine keeps few of many functions"]
    found = []
    if options.basis != "auto":
        found.append(f"basis={options.basis!r} asks for {_functions(options)}")
    if options.n_features is not None:
        found.append(f"n_features asks for {_functions(options)}")
    if options.covariance not in ("auto", "support", "samples"):
        found.append(f"covariance={options.covariance!r} is a covariance of weights")
    if options.optimizer != "auto":
        what = "solves for weights" if options.optimizer == "preconditioned" else "asks for steps"
        found.append(f"optimizer={options.optimizer!r} {what}")
    if decision.first == STEPS and (named := decision.named):
        alone = options.plain and options.n_features is None
        named = [name for name in named if not (alone and name in decision.honoured)]
        found.append(f"{_listed(named)} {'is a setting' if len(named) == 1 else 'are settings'} of steps")
    elif decision.first == STEPS and functions(decision.shape.n, options) > MOST_FEATURES:
        found.append(f"more than {MOST_FEATURES:,} of them are too many for a matrix of their covariance")
    return found


def _smaller(decision: Decision) -> list[str]:
    if decision.moved or decision.sizes == decision.wanted:
        return []
    return [f"With the usual sizes it {_too_much(decision)}, so sizes are smaller."]


def _without_effect(decision: Decision) -> list[str]:
    """Keywords that the closed form has no use for."""
    found, named, covariance = list[str](), decision.named, decision.options.covariance
    if decision.sizes.road != CLOSED_FORM:
        return found
    if named:
        found.append(f"{_listed(named)} {'has' if len(named) == 1 else 'have'} no effect: there are no steps to set.")
    if covariance in ("support", "samples"):
        found.append(f"covariance={covariance!r} has no effect: the closed form has the exact variance.")
    return found


# --- sizes ------------------------------------------------------------------------------------------------------


def _sizes(decision: Decision) -> list[str]:
    by_road = {
        CLOSED_FORM: _sizes_of_closed_form,
        ROWS: _sizes_of_rows,
        WEIGHTS: _sizes_of_weights,
        FEATURES_SOLVED: _sizes_of_features,
        STEPS: _sizes_of_steps,
    }
    return by_road[decision.sizes.road](decision)


def _ranks(decision: Decision) -> list[str]:
    ranks = decision.options.ranks
    if ranks == 1:
        return []
    if decision.options.levels:
        return [f"Each of the {ranks} ranks trains the same model: work is not shared where there are identifiers."]
    if not decision.shape.streamed and shares_features(decision.sizes, decision.options):
        m = decision.sizes.m // ranks
        return [f"{ranks} ranks share the features, about {m:,} each; what steps draw is all they exchange."]
    if decision.sizes.road != ROWS:
        return [f"Each of the {ranks} ranks trains the same model: none of its work is shared."]
    n = decision.sizes.dual_rows // ranks
    return [f"{ranks} ranks share the rows, about {n:,} each; sums over blocks are all they exchange."]


def _sizes_of_closed_form(decision: Decision) -> list[str]:
    if decision.options.max_time is None:
        return [f"The model knows {_all_rows(decision.shape.n)}."]
    return [f"The model knows {_all_rows(decision.shape.n)}, or as many of them as the time allows."]


def _sizes_of_rows(decision: Decision) -> list[str]:
    sizes, options, n = decision.sizes, decision.options, decision.shape.n
    if sizes.dual_rows < n:
        by_memory = sizes.dual_rows < decision.wanted.dual_rows
        busy = ", and fewer if the machine is busy" if options.max_time else ""
        limit = "max_memory allows" if by_memory else f"{options.max_time or SECONDS:g} s allow{busy}"
        found = [f"The model knows {sizes.dual_rows:,} of {_rows(n)}, drawn at random: as many as {limit}."]
    else:
        shorter = ", or as many of them as the time allows" if options.max_time else ""
        found = [f"The model knows {_all_rows(n)}{shorter}."]
    if sizes.dual_rows - sizes.held_out <= sizes.exact_rows:
        return [*found, "They are few enough to be solved in one block."]
    visits = (
        f"visits all rows in blocks of {sizes.block:,}" if sizes.block < sizes.dual_rows else "takes all in one block"
    )
    found.append(f"It begins with the exact GP on {sizes.exact_rows:,} rows at most and then {visits}.")
    if options.tol is not None:
        found.append(f"It has settled when its scores on rows held out change by less than {options.tol:g}.")
    draws = f" and {sizes.draws} posterior draws" if sizes.draws else ""
    return [*found, f"The variance comes from {sizes.variance_points:,} support points{draws}."]


def _sizes_of_weights(decision: Decision) -> list[str]:
    sizes = decision.sizes
    return [
        f"There are {_count(decision)}; {_all_rows(decision.shape.n)} are added up, {sizes.batch_points:,} at a time"
        f"{', as long as time allows' if decision.options.max_time else ''}."
    ]


def _sizes_of_features(decision: Decision) -> list[str]:
    sizes, options = decision.sizes, decision.options
    found = [
        f"There are {_count(decision)}, solved for on {_all_rows(decision.shape.n)}.",
        f"{sizes.support_points:,} support points precondition the system"
        f"{f', and {sizes.draws} posterior draws give the variance' if sizes.draws else ''}.",
    ]
    return found if options.max_iter is None else [*found, f"There are {options.max_iter:,} passes at most."]


def _sizes_of_steps(decision: Decision) -> list[str]:
    sizes, options, n = decision.sizes, decision.options, decision.shape.n
    rows = f"{sizes.batch_points:,} of {_rows(n)}" if sizes.batch_points < n else _all_rows(n)
    of = f"{sizes.batch_features:,} of " if sizes.batch_features < sizes.m else "all of "
    found = [f"A step takes {rows} and {of}{_count(decision)}."]
    if options.max_iter is not None:
        found.append(f"There are {options.max_iter:,} steps at most.")
    if options.optimizer == "adagrad":
        found += _as_the_paper(options)
    if options.tol is not None:
        found.append(f"It ends when the bound gains less than {options.tol:g} of its size in five records.")
    return found


def _as_the_paper(options: Options) -> list[str]:
    """What optimizer="adagrad" means, in the numbers of `paper.settings.PAPER`."""
    steps = options.max_iter or PAPER.iterations
    found = [
        f"Weights move as in the paper: AdaGrad at a rate of {PAPER.rate:g} that decays exponentially over {steps:,} "
        "steps, with the paper's control variate where the noise is Gaussian."
    ]
    if options.learn_hyperparameters and options.basis != "inducing":
        found.append(
            f"Hyperparameters move with them by Adam at a rate of {PAPER.hyper_rate:.5f}, after the first "
            f"{PAPER.frozen:.0%} of the steps."
        )
    return found


def _count(decision: Decision) -> str:
    up_to = "up to " if decision.options.basis in ("grid", "inducing") else ""
    return f"{up_to}{decision.sizes.m:,} {_functions(decision.options)}"


def _hyperparameters(decision: Decision) -> list[str]:
    n, sizes = decision.shape.n, decision.sizes
    if not decision.options.learn_hyperparameters:
        return ["Hyperparameters are not learned."]
    some, most = min(n, sizes.learn_points), min(n, sizes.learn_most)
    more = f", on up to {most:,} if there is time" if most > some else ""
    return [f"Hyperparameters are learned on {_rows(some)}{more}.", *_kernels(decision)]


def _kernels(decision: Decision) -> list[str]:
    """What competes where there are rows enough to tell."""
    options, road = decision.options, decision.sizes.road
    if road not in (ROWS, FEATURES_SOLVED):
        return []
    metrics = {"auto": ", with and without a learned metric", "full": ", with a learned metric", "ard": ""}
    metric = metrics[options.metric]
    if options.kernel == "auto":
        count = len((*AUTO, *ROUGH))
        return [f"{count} kernels and sums of two compete{metric}; rows that nothing was learned from choose."]
    if options.metric == "auto":
        return [f"The kernel {options.kernel!r} competes{metric}; rows that nothing was learned from choose."]
    return []


def _held_out(decision: Decision) -> list[str]:
    held, road = decision.held_out, decision.sizes.road
    if road in (ROWS, WEIGHTS) and held:
        return [f"{_rows(held)} are held out to judge the model; they join at the end."]
    if road == FEATURES_SOLVED and held:
        return [f"{_rows(held)} are held out to judge the model."]
    if road == STEPS and not decision.options.relevance and (compared := judges(decision.sizes)):
        known = min(decision.sizes.learn_points, LEARN_POINTS, decision.shape.n - compared)
        return [f"{_rows(compared)} compare the model at the end with the exact GP on {_rows(known)}."]
    return []


def _target_map(decision: Decision) -> list[str]:
    options, shape = decision.options, decision.shape
    if not options.maps_targets(shape.n, shape.outputs) or shape.n < LEAST_ROWS:
        return []
    if options.target_map == "auto":
        return ["Targets are mapped by a sinh-arcsinh if rows not learned from are predicted better so (target_map)."]
    return [f"Targets are mapped (target_map={options.target_map!r}), and predictions back."]


def _noise(decision: Decision) -> list[str]:
    """Who says what noise predictions have."""
    options, road = decision.options, decision.sizes.road
    if options.noise == "equal" or not LIKELIHOODS[options.likelihood].fixed_sites or road == STEPS:
        return []
    rows = decision.shape.n if road == CLOSED_FORM else decision.held_out
    if rows < LEAST_ROWS:
        return []
    who = "Each row as the others predict it says" if road == CLOSED_FORM else "Rows held out say"
    return [f"{who} whether the noise of predictions is equal and normal (noise)."]


def _labels(decision: Decision) -> list[str]:
    if decision.options.likelihood != LabelsAsNumbers.name:
        return []
    return ["Labels are taken for numbers; rows held out tell how predictions become probabilities."]


# --- cost -------------------------------------------------------------------------------------------------------


def _cost(decision: Decision) -> list[str]:
    options, double = decision.options, decision.sizes.road == CLOSED_FORM
    limit = "not set" if options.max_memory >= 2**62 else readable(options.max_memory)
    device = "cpu" if double else options.device
    dtype = "float64" if double else str(options.table_dtype).removeprefix("torch.")
    found = [f"This fit takes about {decision.need} on {device} in {dtype}; max_memory is {limit}."]
    if options.max_time is None:
        found.append("There is no limit of time (max_time).")
    else:
        found.append(f"It ends after {options.max_time:g} s (max_time).")
    if options.checkpoint is not None and not double:
        found.append("Checkpoints are written: a run that was killed goes on from there.")
    return found


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _all_rows(n: int) -> str:
    return f"all {_rows(n)}" if n > 1 else "the one row"


def _listed(names: list[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(names[:-1]), *names[-1:]] if len(names) > 1 else names)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
