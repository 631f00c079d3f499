//! `Workspace`.

use std::ffi::OsStr;
use std::path::PathBuf;

use pyo3::prelude::*;
use tollgate_binding::{Missing, PastSelection, VaultHandle, WorkspaceHandle};

use crate::convert::{call, call_json};
use crate::turn::PyTurn;
use crate::vault::PyVault;

/// A workspace: a folder that agents and people share.
#[pyclass(frozen, name = "Workspace", module = "tollgate")]
pub(crate) struct PyWorkspace(WorkspaceHandle);

#[pymethods]
impl PyWorkspace {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        call(py, || WorkspaceHandle::open(&path)).map(Self)
    }

    #[getter]
    fn path(&self) -> &OsStr {
        self.0.path().as_os_str()
    }

    #[pyo3(signature = (agent=None))]
    fn turn(&self, py: Python<'_>, agent: Option<&str>) -> PyResult<PyTurn> {
        call(py, || self.0.turn(agent)).map(PyTurn)
    }

    #[pyo3(signature = (*, create=false))]
    fn vault(&self, py: Python<'_>, create: bool) -> PyResult<PyVault> {
        let missing = if create { Missing::Create } else { Missing::Fails };
        call(py, || VaultHandle::open(&self.0, missing)).map(PyVault)
    }

    #[pyo3(signature = (path=None, *, agent=None, task=None, since=None, limit=None))]
    fn history<'py>(
        &self,
        py: Python<'py>,
        path: Option<PathBuf>,
        agent: Option<String>,
        task: Option<String>,
        since: Option<String>,
        limit: Option<u32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let selection = PastSelection { path, agent, task, since, limit };
        call_json(py, || self.0.history(&selection))
    }

    #[pyo3(signature = (path, *, why=false))]
    fn blame<'py>(&self, py: Python<'py>, path: PathBuf, why: bool) -> PyResult<Bound<'py, PyAny>> {
        call_json(py, || self.0.blame(&path, why))
    }

    fn __repr__(&self) -> String {
        format!("Workspace({:?})", self.0.path())
    }
}
