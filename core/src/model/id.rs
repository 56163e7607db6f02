//! Typed ids: UUIDv7 inside, `job_` and 26 lower-case base32 characters outside. Both directions live here.

use std::{fmt, str::FromStr};

use data_encoding::{Encoding, Specification};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

/// Lower-case base32 in an alphabet whose order is the order of the bytes (RFC 4648 "extended hex"),
/// so that ids sort as their UUIDs do.
fn encoding() -> &'static Encoding {
    static ENCODING: std::sync::OnceLock<Encoding> = std::sync::OnceLock::new();
    ENCODING.get_or_init(|| {
        let mut spec = Specification::new();
        spec.symbols.push_str("0123456789abcdefghijklmnopqrstuv");
        // The alphabet has 32 distinct symbols, so the specification is valid.
        spec.encoding().expect("32 distinct symbols")
    })
}

/// Why a text is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not an id that starts with '{prefix}_' and has 26 lower-case letters and digits after it")]
pub struct IdError {
    pub prefix: &'static str,
    pub text: String,
}

fn parse(prefix: &'static str, text: &str) -> Result<Uuid, IdError> {
    let fault = || IdError {
        prefix,
        text: text.chars().take(64).collect(),
    };
    let body = text
        .strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('_'))
        .ok_or_else(fault)?;
    let bytes = encoding().decode(body.as_bytes()).map_err(|_| fault())?;
    Uuid::from_slice(&bytes).map_err(|_| fault())
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl $name {
            pub const PREFIX: &'static str = $prefix;
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}_{}", $prefix, encoding().encode(self.0.as_bytes()))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                parse($prefix, text).map(Self)
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .pattern(Some(concat!("^", $prefix, "_[0-9a-v]{26}$")))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {}
    )*};
}

ids! {
    /// What a person asked to train.
    JobId "job";
    /// One submission of a job to one cluster.
    AttemptId "att";
    /// One pod or process that a replica had.
    IncarnationId "inc";
    /// The output of one incarnation's container on one of its streams.
    StreamId "str";
    ClusterId "clu";
    NodePoolId "pool";
    NodeId "node";
    TeamId "team";
    UserId "user";
    TokenId "tok";
    SecretId "sec";
    CheckId "chk";
    AuditId "aud";
    WorkerId "wrk";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_the_way_out_and_back_and_keeps_its_order() {
        let low = JobId(Uuid::from_u128(7));
        let high = JobId(Uuid::from_u128(u128::MAX - 1));
        assert_eq!(low.to_string().len(), "job_".len() + 26);
        assert_eq!(low.to_string().parse(), Ok(low));
        assert_eq!(high.to_string().parse(), Ok(high));
        assert!(low.to_string() < high.to_string());
    }

    #[test]
    fn an_id_of_another_kind_or_shape_is_refused() {
        let attempt = AttemptId(Uuid::from_u128(7)).to_string();
        assert!(attempt.parse::<JobId>().is_err());
        assert!("job_".parse::<JobId>().is_err());
        assert!("job_ZZZZZZZZZZZZZZZZZZZZZZZZZZ".parse::<JobId>().is_err());
        assert!("job_0000000000000000000000000é".parse::<JobId>().is_err());
    }
}
