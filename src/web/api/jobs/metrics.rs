//! `GET /api/v1/jobs/{job}/metrics`: a job's series, as JSON or CSV.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use trainyard_core::model::{JobId, ReplicaKey};
use utoipa::{IntoParams, ToSchema};

use super::super::super::{
    Error, WebState, accept,
    extract::{Asker, Params, PathOf},
};
use crate::{
    actions::FieldFault,
    db::{
        Db, DbError, logs,
        metrics::{self, Owner, Point, Selection, SeriesKey},
    },
    logs::page::Filter,
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MetricParams {
    /// Only these series; may come several times. Left out: all.
    #[serde(default)]
    pub series: Vec<String>,
    /// Only this attempt.
    #[param(minimum = 1)]
    #[serde(default, deserialize_with = "crate::web::params::at_least::<1, _>")]
    pub attempt: Option<i32>,
    /// Only this replica, with `index`.
    pub role: Option<String>,
    #[param(minimum = 0)]
    #[serde(default, deserialize_with = "crate::web::params::at_least::<0, _>")]
    pub index: Option<i32>,
    /// From this time on.
    pub since: Option<DateTime<Utc>>,
    /// Before this time.
    pub until: Option<DateTime<Utc>>,
    /// At most this many points of each series and replica, evenly chosen, first and last always. Left out: 2000.
    #[param(minimum = 2, maximum = 100000)]
    pub points: Option<usize>,
    /// `csv` or `json`, for who can't send `Accept`. As CSV all points are sent unless `points` is given.
    #[param(inline)]
    pub format: Option<Format>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Csv,
    Json,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct MetricList {
    pub items: Vec<Series>,
    /// The names of all series that there are.
    pub names: Vec<String>,
}

/// One series of one replica in one attempt, as columns of the same length.
#[derive(Debug, Serialize, ToSchema)]
pub struct Series {
    pub name: String,
    pub attempt: i32,
    /// `null`: of the job (or node) as a whole.
    pub role: Option<String>,
    pub index: Option<u32>,
    /// How many points there are; the columns may hold fewer.
    pub total: usize,
    pub steps: Vec<Option<i64>>,
    /// Milliseconds since 1970.
    pub times: Vec<i64>,
    pub values: Vec<f64>,
}

/// A job's series: numbers that its replicas printed or posted, and what was measured of them. As JSON columns, or as
/// CSV with `Accept: text/csv` or `format=csv`.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/metrics",
    tag = "metrics",
    params(("job" = JobId, Path, description = "The job's id"), MetricParams),
    responses((status = 200, content((MetricList = "application/json"), (String = "text/csv"))))
)]
pub async fn get_job_metrics(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    Params(params): Params<MetricParams>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let key = super::found(job, logs::readable(&state.db, &asker.scope(), job).await)?;
    super::attempt_or_newest(&super::home(&state, &asker, job).await?, params.attempt)?;
    if let (Some(role), index) = (&params.role, params.index) {
        let replica = replica(role, index);
        let selection = Selection {
            replica: Some(&replica),
            ..Selection::default()
        };
        // Who has series is somebody, as mpirun's ranks are that no replica stands for.
        if metrics::keys(&state.db, Owner::Job(key), &selection).await?.is_empty() {
            let filter = Filter {
                role: params.role.clone(),
                index,
                ..Filter::default()
            };
            super::somebody(&state, &asker, job, &filter).await?;
        }
    }
    answer(&state, Owner::Job(key), &params, &headers).await
}

fn replica(role: &str, index: Option<i32>) -> ReplicaKey {
    ReplicaKey {
        role: role.to_owned(),
        index: index.unwrap_or(0).unsigned_abs(),
    }
}

/// The series of an owner that the caller may see.
pub(in crate::web::api) async fn answer(
    state: &WebState,
    owner: Owner,
    params: &MetricParams,
    headers: &HeaderMap,
) -> Result<Response, Error> {
    let replica = match (&params.role, params.index) {
        (Some(role), index) => Some(replica(role, index)),
        (None, None) => None,
        (None, Some(_)) => {
            return Err(Error::parameter(FieldFault::new(
                "role",
                "missing_parameter",
                "an index belongs to a role",
            )));
        }
    };
    let most = params.points.unwrap_or(2000);
    if !(2..=100_000).contains(&most) {
        return Err(Error::parameter(
            FieldFault::new(
                "points",
                "out_of_range",
                "between 2 and 100000 points of each series can be asked for",
            )
            .value(most.to_string()),
        ));
    }
    let selection = Selection {
        attempt: params.attempt,
        names: &params.series,
        replica: replica.as_ref(),
        since: params.since,
        until: params.until,
        ..Selection::default()
    };
    let as_csv = match params.format {
        Some(format) => format == Format::Csv,
        None => accept::prefers(headers, "text/csv", "application/json"),
    };
    if as_csv {
        let keys = metrics::keys(&state.db, owner, &selection).await?;
        let rows = csv(
            state.db.clone(),
            owner,
            keys,
            (params.since, params.until),
            params.points,
        );
        let mut response = Response::new(Body::from_stream(rows.inspect_err(broke_off)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv"));
        headers.insert(
            header::CONTENT_DISPOSITION,
            HeaderValue::from_static("attachment; filename=\"metrics.csv\""),
        );
        return Ok(response);
    }
    let found = metrics::read(&state.db, owner, &selection).await?;
    let items: Vec<Series> = (found.into_iter())
        .map(|(key, points)| {
            let total = points.len();
            let chosen: Vec<_> = chosen(total, most).map(|place| points[place]).collect();
            Series {
                name: key.name,
                attempt: key.attempt,
                index: key.replica.as_ref().map(|replica| replica.index),
                role: key.replica.map(|replica| replica.role),
                total,
                steps: chosen.iter().map(|point| point.step).collect(),
                times: chosen.iter().map(|point| point.at).collect(),
                values: chosen.iter().map(|point| point.value).collect(),
            }
        })
        .collect();
    let names = metrics::names(&state.db, owner).await?;
    Ok(Json(MetricList { items, names }).into_response())
}

/// Places of at most `most` of `total` points, evenly, the first and the last among them.
fn chosen(total: usize, most: usize) -> impl Iterator<Item = usize> {
    let count = total.min(most);
    (0..count).map(move |nth| {
        if count < total {
            nth * (total - 1) / (count - 1)
        } else {
            nth
        }
    })
}

/// The head, then series by series, so that no more than one of them is at hand at once.
fn csv(
    db: Db,
    owner: Owner,
    keys: Vec<SeriesKey>,
    (since, until): (Option<DateTime<Utc>>, Option<DateTime<Utc>>),
    most: Option<usize>,
) -> impl Stream<Item = Result<String, DbError>> {
    let head = stream::once(async { Ok("series,attempt,role,index,step,time_ms,value\r\n".to_owned()) });
    let rows = stream::iter(keys).then(move |key| {
        let db = db.clone();
        async move {
            let names = [key.name.clone()];
            let selection = Selection {
                attempt: Some(key.attempt),
                names: &names,
                replica: key.replica.as_ref(),
                since,
                until,
                ..Selection::default()
            };
            // Without a replica the selection has every replica's.
            let points = metrics::read(&db, owner, &selection).await?.remove(&key);
            let points = points.unwrap_or_default();
            let places = chosen(points.len(), most.unwrap_or(usize::MAX));
            Ok(lines(&key, places.map(|place| points[place])))
        }
    });
    head.chain(rows)
}

fn lines(key: &SeriesKey, points: impl Iterator<Item = Point>) -> String {
    let (role, index) = match &key.replica {
        Some(replica) => (replica.role.as_str(), replica.index.to_string()),
        None => ("", String::new()),
    };
    let head = format!("{},{},{},{index}", quoted(&key.name), key.attempt, quoted(role));
    let mut out = String::new();
    for point in points {
        let step = point.step.map(|step| step.to_string()).unwrap_or_default();
        out.push_str(&format!("{head},{step},{},{}\r\n", point.at, point.value));
    }
    out
}

/// The head of the answer is sent by then; the client sees a body that breaks off.
fn broke_off(error: &DbError) {
    tracing::warn!(%error, "a table of numbers broke off");
}

/// A field that no table program takes for two fields or for a formula.
fn quoted(text: &str) -> String {
    let guarded = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{text}")
    } else {
        text.to_owned()
    };
    if guarded.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", guarded.replace('"', "\"\""))
    } else {
        guarded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_both_ends_and_the_number() {
        assert_eq!(chosen(3, 10).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(chosen(0, 10).count(), 0);
        let places: Vec<usize> = chosen(1000, 7).collect();
        assert_eq!((places.len(), places[0], places[6]), (7, 0, 999));
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_name_stays_one_field_and_never_a_formula() {
        assert_eq!(quoted("loss"), "loss");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("=1+1"), "'=1+1");
    }
}
