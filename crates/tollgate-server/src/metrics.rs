//! `GET /metrics`: figures in the text format of Prometheus.

use axum::extract::State;

use crate::site::Site;

pub(crate) async fn get(State(site): State<Site>) -> String {
    format!(
        "# TYPE tollgate_start_time_seconds gauge\ntollgate_start_time_seconds {}\n",
        site.started.as_second()
    )
}
