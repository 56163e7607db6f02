//! Rate limits by caller, as buckets that fill with time. They are kept per process: with several servers a caller gets
//! as much from each. What is not used for a while is forgotten, so the table stays small.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use uuid::Uuid;

use super::{Code, Error};

#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub per_second: f64,
    pub burst: f64,
}

/// Who is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Who {
    User(Uuid),
    Address(IpAddr),
    /// The transport did not tell.
    Unknown,
}

struct Bucket {
    left: f64,
    at: Instant,
}

#[derive(Clone)]
pub struct Rates {
    limit: Limit,
    buckets: Arc<Mutex<HashMap<Who, Bucket>>>,
}

/// Beyond this many callers, full buckets are thrown out.
const KEPT: usize = 10_000;

impl Rates {
    pub fn new(limit: Limit) -> Self {
        Self {
            limit,
            buckets: Arc::default(),
        }
    }

    pub fn take(&self, who: Who) -> Result<(), Error> {
        self.take_at(who, Instant::now())
    }

    fn take_at(&self, who: Who, now: Instant) -> Result<(), Error> {
        // A panic elsewhere leaves buckets as they were, which is good enough to count on.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = self.limit;
        if buckets.len() >= KEPT && !buckets.contains_key(&who) {
            buckets.retain(|_, bucket| filled(bucket, limit, now) < limit.burst);
            if buckets.len() >= KEPT {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(who).or_insert(Bucket {
            left: limit.burst,
            at: now,
        });
        bucket.left = filled(bucket, limit, now);
        bucket.at = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        metrics::counter!("trainyard_http_refused_total", "reason" => "rate").increment(1);
        let seconds = ((1.0 - bucket.left) / limit.per_second).ceil().clamp(1.0, 3600.0);
        Err(Error::new(
            Code::RateLimited,
            format!("More than {} requests per second", limit.per_second),
        )
        .hint("wait as long as Retry-After says; live views need no polling")
        .retry_after(seconds as u64))
    }
}

fn filled(bucket: &Bucket, limit: Limit, now: Instant) -> f64 {
    let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
    (bucket.left + passed * limit.per_second).min(limit.burst)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_bucket_empties_and_fills_and_callers_do_not_share_one() {
        let rates = Rates::new(Limit {
            per_second: 2.0,
            burst: 3.0,
        });
        let (one, other) = (Who::User(Uuid::from_u128(1)), Who::User(Uuid::from_u128(2)));
        let start = Instant::now();
        for _ in 0..3 {
            assert!(rates.take_at(one, start).is_ok());
        }
        let refused = rates.take_at(one, start).unwrap_err();
        assert_eq!((refused.0.status, refused.0.retry_after), (429, Some(1)));
        assert!(rates.take_at(other, start).is_ok());
        assert!(rates.take_at(one, start + Duration::from_millis(500)).is_ok());
        assert!(rates.take_at(one, start + Duration::from_millis(500)).is_err());
    }
}
