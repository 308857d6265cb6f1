"""scikit-learn's callbacks (progress, scoring, stopping) for our estimators; the only file that knows of them.

They came with scikit-learn 1.9. With an older one `set_callbacks` says so and training runs without.
"""

from collections.abc import Callable
from typing import Any

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks

    SUPPORTED = True
except ImportError:  # scikit-learn before 1.9
    SUPPORTED = False

    class CallbackSupportMixin:  # type: ignore[no-redef]
        def set_callbacks(self, *callbacks: Any) -> Any:
            raise AttributeError("Expected scikit-learn 1.9 or newer for callbacks, got an older one. Update it.")

    def with_callbacks(method: Any) -> Any:
        return method


__all__ = ["CallbackSupportMixin", "Watch", "with_callbacks"]


class Watch:
    """One fit as callbacks see it: a root task, and one task for every record of the training loop."""

    def __init__(self, estimator: Any, X: Any, y: Any, sample_weight: Any) -> None:
        self._estimator, self._data = estimator, {"X": X, "y": y, "metadata": {"sample_weight": sample_weight}}
        self._root: Any = None
        if SUPPORTED:
            self._root = estimator._init_callback_context(max_subtasks=None)
            self._root.call_on_fit_task_begin(estimator=estimator, **self._data)

    def record(self, fitted: Callable[[], dict[str, Any]]) -> bool:
        """After a record: ``fitted`` gives the attributes of a model as if training ended here. True: stop."""
        if self._root is None:
            return False
        # Whether a further record follows is known only when it is there: its task begins and ends with it.
        task = self._root.subcontext(task_name="iterations")
        task.call_on_fit_task_begin(estimator=self._estimator, **self._data)
        stop = task.call_on_fit_task_end(estimator=self._estimator, **self._data, reconstruction_attributes=fitted)
        return bool(stop)

    def end(self, fitted: Callable[[], dict[str, Any]]) -> None:
        if self._root is not None:
            self._root.call_on_fit_task_end(estimator=self._estimator, **self._data, reconstruction_attributes=fitted)
