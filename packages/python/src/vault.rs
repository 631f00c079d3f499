//! `Vault`.

use pyo3::prelude::*;
use tollgate_binding::VaultHandle;

use crate::claim::PyClaim;
use crate::convert::{call, call_json, kind};

/// The tasks of a workspace.
#[pyclass(frozen, name = "Vault", module = "tollgate")]
pub(crate) struct PyVault(pub(crate) VaultHandle);

#[pymethods]
impl PyVault {
    fn add<'py>(&self, py: Python<'py>, task: &str, text: &str) -> PyResult<Bound<'py, PyAny>> {
        call_json(py, || self.0.add(task, text))
    }

    #[pyo3(signature = (state=None))]
    fn list<'py>(&self, py: Python<'py>, state: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
        call_json(py, || self.0.list(state))
    }

    fn get<'py>(&self, py: Python<'py>, task: &str) -> PyResult<Bound<'py, PyAny>> {
        call_json(py, || self.0.get(task))
    }

    #[pyo3(signature = (task, agent=None, *, tenure="held"))]
    fn claim(&self, py: Python<'_>, task: &str, agent: Option<&str>, tenure: &str) -> PyResult<PyClaim> {
        let kind = kind(tenure)?;
        call(py, || self.0.claim(task, agent, kind)).map(PyClaim)
    }

    #[pyo3(signature = (agent=None, *, tenure="held"))]
    fn claim_next(&self, py: Python<'_>, agent: Option<&str>, tenure: &str) -> PyResult<PyClaim> {
        let kind = kind(tenure)?;
        call(py, || self.0.claim_next(agent, kind)).map(PyClaim)
    }
}
