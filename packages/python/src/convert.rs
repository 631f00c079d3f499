//! Between Python's values and ours.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};
use serde_json::{Map, Value};
use tollgate::vault::ClaimKind;
use tollgate_binding::{Answered, CallFailure};

/// Makes a call without the interpreter's lock.
pub(crate) fn call<T: Send>(py: Python<'_>, call: impl FnOnce() -> Answered<T> + Send) -> PyResult<T> {
    py.detach(call).map_err(|failure| exception(py, &failure))
}

/// Makes a call without the interpreter's lock, and returns its answer as Python's dictionaries and lists.
pub(crate) fn call_json<'py>(
    py: Python<'py>,
    request: impl FnOnce() -> Answered<Value> + Send,
) -> PyResult<Bound<'py, PyAny>> {
    to_python(py, &call(py, request)?)
}

fn exception(py: Python<'_>, failure: &CallFailure) -> PyErr {
    let made = to_python(py, &failure.json())
        .and_then(|failure| py.import("tollgate._errors")?.getattr("exception")?.call1((failure,)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Number(value) => match (value.as_i64(), value.as_u64()) {
            (Some(value), _) => value.into_pyobject(py)?.into_any(),
            (None, Some(value)) => value.into_pyobject(py)?.into_any(),
            (None, None) => PyFloat::new(py, value.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Value::String(value) => PyString::new(py, value).into_any(),
        Value::Array(values) => {
            let list = PyList::empty(py);
            values.iter().try_for_each(|value| list.append(to_python(py, value)?))?;
            list.into_any()
        }
        Value::Object(values) => {
            let dict = PyDict::new(py);
            values.iter().try_for_each(|(key, value)| dict.set_item(key, to_python(py, value)?))?;
            dict.into_any()
        }
    })
}

pub(crate) fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    Ok(if value.is_none() {
        Value::Null
    } else if let Ok(value) = value.cast::<PyBool>() {
        value.is_true().into()
    } else if let Ok(value) = value.cast::<PyInt>() {
        value.extract::<i64>()?.into()
    } else if let Ok(value) = value.cast::<PyString>() {
        value.to_str()?.into()
    } else if let Ok(dict) = value.cast::<PyDict>() {
        let pairs = dict.iter().map(|(key, value)| Ok((key.extract::<String>()?, from_python(&value)?)));
        Value::Object(pairs.collect::<PyResult<Map<_, _>>>()?)
    } else if let Ok(values) = value.try_iter() {
        values.map(|value| from_python(&value?)).collect::<PyResult<Vec<_>>>()?.into()
    } else if let Ok(path) = value.extract::<std::path::PathBuf>() {
        path.to_string_lossy().into()
    } else {
        return Err(PyTypeError::new_err(format!("{} has no place in a list of changes", value.get_type())));
    })
}

/// The bytes of a file: `str`, in UTF-8, or `bytes`.
pub(crate) fn content(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_str()?.as_bytes().to_vec());
    }
    match value.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => Err(PyTypeError::new_err(format!("content is str or bytes, not {}", value.get_type()))),
    }
}

/// How long a claim lasts, from the argument `tenure`.
pub(crate) fn kind(tenure: &str) -> PyResult<ClaimKind> {
    match tenure {
        "held" => Ok(ClaimKind::Held),
        "leased" => Ok(ClaimKind::Leased),
        other => Err(PyValueError::new_err(format!("tenure is 'held' or 'leased', not {other:?}"))),
    }
}
