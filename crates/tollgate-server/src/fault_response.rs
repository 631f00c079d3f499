//! A fault of the library as an HTTP response.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tollgate::error::Fault;

/// Turns a fault into a status and one sentence.
#[derive(Debug)]
pub struct FaultResponse(pub Fault);

impl From<Fault> for FaultResponse {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

impl IntoResponse for FaultResponse {
    fn into_response(self) -> Response {
        let status = match &self.0 {
            Fault::Missing { .. } => StatusCode::NOT_FOUND,
            Fault::Invalid { .. } => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, format!("{}\n", self.0)).into_response()
    }
}
