//! `Claim`.

use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use serde_json::Value;
use tollgate_binding::{ClaimEnd, ClaimHandle};

use crate::convert::{call, call_json, to_python};
use crate::turn::PyTurn;

/// The longest note about an exception: enough to find it, and little enough for a task file.
const LONGEST_NOTE: usize = 500;

/// A claim on a task.
#[pyclass(frozen, name = "Claim", module = "tollgate")]
pub(crate) struct PyClaim(pub(crate) ClaimHandle);

impl PyClaim {
    fn shown(&self, key: &str) -> Option<&str> {
        self.0.shown().get(key).and_then(Value::as_str)
    }
}

#[pymethods]
impl PyClaim {
    #[getter]
    fn task(&self) -> &str {
        self.shown("task").unwrap_or_default()
    }

    #[getter]
    fn agent(&self) -> &str {
        self.shown("agent").unwrap_or_default()
    }

    #[getter]
    fn claim_id(&self) -> &str {
        self.shown("claim_id").unwrap_or_default()
    }

    #[getter]
    fn mode(&self) -> &str {
        self.shown("mode").unwrap_or_default()
    }

    #[getter]
    fn path(&self) -> Option<&str> {
        self.shown("path")
    }

    #[getter]
    fn action(&self) -> Option<&str> {
        self.shown("action")
    }

    #[getter]
    fn lease_until(&self) -> Option<&str> {
        self.shown("lease_until")
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.0.shown()["epoch"].as_u64().unwrap_or_default()
    }

    #[getter]
    fn ended(&self) -> bool {
        self.0.is_ended()
    }

    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self.0.shown())
    }

    fn text(&self, py: Python<'_>) -> PyResult<String> {
        call(py, || self.0.text())
    }

    fn turn(&self, py: Python<'_>) -> PyResult<PyTurn> {
        call(py, || self.0.turn()).map(PyTurn)
    }

    fn fence(&self, turn: &PyTurn) {
        self.0.fence(&turn.0);
    }

    fn verify(&self, py: Python<'_>) -> PyResult<bool> {
        call(py, || self.0.verify())
    }

    fn renew<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        call_json(py, || self.0.renew())
    }

    fn progress(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        call(py, || self.0.progress(text))
    }

    fn draft(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        call(py, || self.0.draft(text))
    }

    #[pyo3(signature = (result="success", *, to=None, note=None))]
    fn release<'py>(
        &self,
        py: Python<'py>,
        result: &str,
        to: Option<String>,
        note: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let end = match result {
            "success" => ClaimEnd::Success(to),
            "failure" => ClaimEnd::Failure(to),
            other => {
                return Err(PyValueError::new_err(format!(
                    "result is 'success' or 'failure', not {other:?}"
                )));
            }
        };
        call_json(py, || self.0.release(&end, note))
    }

    fn give_back<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        call_json(py, || self.0.release(&ClaimEnd::GiveBack, None))
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        if self.0.is_ended() {
            return Ok(false);
        }
        if error.is_none() {
            call(py, || self.0.release(&ClaimEnd::Success(None), None))?;
            return Ok(false);
        }
        // An interrupt or the cancellation of a task says nothing about the work.
        let end = match error.is_instance_of::<PyException>() {
            true => ClaimEnd::Failure(None),
            false => ClaimEnd::GiveBack,
        };
        let note: String = match (error.get_type().name(), error.str()) {
            (Ok(name), Ok(text)) => format!("{name}: {text}").chars().take(LONGEST_NOTE).collect(),
            _ => "an exception".to_owned(),
        };
        // The caller must hear of its own exception, not of this release. If it fails, the claim ends with the handle.
        let _ = call(py, || self.0.release(&end, Some(&note)));
        Ok(false)
    }

    fn __repr__(&self) -> String {
        format!("Claim(task={:?}, agent={:?})", self.task(), self.agent())
    }
}
