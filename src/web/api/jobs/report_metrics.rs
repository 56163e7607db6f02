//! `POST /api/v1/jobs/{job}/metrics`: a job reports numbers.

use axum::{Json, extract::State, http::StatusCode};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use trainyard_core::model::{JobId, ReplicaKey};
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    error::Problem,
    extract::{Asker, JsonBody, PathOf},
};
use crate::actions::{FieldFault, Refusal, report::NewPoint};

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPoints {
    /// The replica that they are from. Left out: of the job as a whole.
    pub replica: Option<OfReplica>,
    #[schema(min_items = 1, max_items = 10000)]
    pub points: Vec<PostedPoint>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OfReplica {
    #[schema(example = "worker")]
    pub role: String,
    #[schema(minimum = 0, maximum = 2147483647, example = 0)]
    pub index: u32,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PostedPoint {
    #[schema(min_length = 1, max_length = 64, example = "loss")]
    pub series: String,
    #[schema(example = 0.31)]
    pub value: f64,
    #[schema(minimum = 0, example = 120)]
    pub step: Option<i64>,
    /// Left out: when it arrived.
    pub at: Option<DateTime<Utc>>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct StoredPoints {
    pub stored: usize,
}

/// Reports points of series for the newest attempt. For the job's own token, and members of its team. Printing
/// `step=120 loss=0.31` does the same without any request.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{job}/metrics",
    tag = "metrics",
    params(("job" = JobId, Path, description = "The job's id")),
    request_body(content = NewPoints),
    responses(
        (status = 201, body = StoredPoints),
        (status = 409, description = "The job has ended or has not started", body = Problem,
            content_type = "application/problem+json")
    )
)]
pub async fn report_metrics(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    JsonBody(new): JsonBody<NewPoints>,
) -> Result<(StatusCode, Json<StoredPoints>), Error> {
    if let Some(replica) = new.replica.as_ref().filter(|replica| replica.index > i32::MAX as u32) {
        let fault = FieldFault::new("replica.index", "out_of_range", "no role has as many replicas");
        return Err(Refusal::Faults(vec![fault.value(replica.index.to_string())]).into());
    }
    let replica = new.replica.map(|replica| ReplicaKey {
        role: replica.role,
        index: replica.index,
    });
    let points: Vec<NewPoint> = (new.points.into_iter())
        .map(|point| NewPoint {
            series: point.series,
            value: point.value,
            step: point.step,
            at: point.at.map(|at| at.timestamp_millis()),
            replica: replica.clone(),
        })
        .collect();
    let stored = state.actions.report_points(asker.ask(), job, &points).await?;
    Ok((StatusCode::CREATED, Json(StoredPoints { stored })))
}
