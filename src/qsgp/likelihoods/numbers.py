"""Labels taken for numbers: Gaussian noise while a model is trained, log odds when it predicts.

With -1 and +1 for numbers all classes share one noise and one factor, and the evidence tells the kernel as it does for
any target. Sites of labels have a noise for each row and class; in the same time they see far fewer rows. Predictions
of labels become log odds by one number, which rows held out choose: f = scale g.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.interfaces import Parameters
from qsgp.likelihoods.gaussian import Gaussian
from qsgp.likelihoods.logistic import Logistic

_SCALES = tuple(2 ** (k / 4) for k in range(-4, 33))  # from 0.5 to 256


@dataclass(frozen=True)
class LabelsAsNumbers(Gaussian):
    """Sites as `Gaussian` has them; the density of a label is that of log odds ``scale`` times the prediction.

    Targets are labels less the mean of their column: their signs are the labels, and what is missing is the mean.
    """

    scale: Float[Tensor, ""] = field(default_factory=lambda: torch.tensor(1.0))

    name: ClassVar[str] = "numbers"
    words: ClassVar[str] = "labels as numbers"
    labels: ClassVar[bool] = True
    trains_only: ClassVar[bool] = True  # a fitted model has log odds

    def with_parameters(self, parameters: Parameters) -> "LabelsAsNumbers":
        noise_variance = parameters["log_noise_variance"].exp()
        return replace(self, noise_variance=noise_variance, scale=self.scale.to(noise_variance))

    def candidates(self) -> list["LabelsAsNumbers"]:
        """For rows held out to choose from."""
        return [replace(self, scale=torch.full_like(self.scale, scale)) for scale in _SCALES]

    def odds(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> tuple[Float[Tensor, "*#s"], Float[Tensor, "*#s"], Float[Tensor, "*#s"]]:
        """Labels -1 and +1, and mean and variance of their log odds."""
        label = y.sign()
        return label, self.scale * (mean + label - y), self.scale.square() * variance

    def log_density(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        return Logistic().log_density(*self.odds(y, mean, variance))

    def density_of_class(
        self, Y: Float[Tensor, "n o"], mean: Float[Tensor, "n o"], variance: Float[Tensor, "n o"]
    ) -> Float[Tensor, " n"]:
        """Log probability of each row's class, told from the others as a fitted model does it."""
        label, m, v = self.odds(Y, mean, variance)
        if Y.shape[1] == 1:
            return Logistic().log_density(label, m, v)[:, 0]
        logs = Logistic().log_density(torch.ones_like(m), m, v)
        return (logs - logs.logsumexp(1, keepdim=True)).gather(1, label.argmax(1, keepdim=True))[:, 0]
