//! Query parameters into types, with the parameter's name in every fault. A parameter may come several times where the
//! type is a list; where it is not, the last one would win silently, so that is a fault.

use std::{
    collections::{BTreeMap, btree_map},
    fmt,
};

use percent_encoding::percent_decode_str;
use serde::{
    Deserialize,
    de::{
        self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess,
        value::{MapAccessDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};

use crate::actions::FieldFault;

pub fn parse<T: DeserializeOwned>(query: &str) -> Result<T, FieldFault> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in pairs(query)? {
        values.entry(name).or_default().push(value);
    }
    let map = MapAccessDeserializer::new(Parameters {
        rest: values.into_iter(),
        current: None,
    });
    T::deserialize(map).map_err(|fault: Fault| fault.0)
}

/// Names and values in the order in which they were sent.
pub fn pairs(query: &str) -> Result<Vec<(String, String)>, FieldFault> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

/// A form's field of this name, if there is one that can be read.
pub fn field(form: &[u8], wanted: &str) -> Option<String> {
    let pairs = pairs(std::str::from_utf8(form).ok()?).ok()?;
    let found = pairs.into_iter().find(|(name, _)| name == wanted);
    found.map(|(_, value)| value)
}

/// For `deserialize_with`: a whole number from `LEAST` on that a record can hold.
pub fn at_least<'de, const LEAST: i32, D: de::Deserializer<'de>>(from: D) -> Result<Option<i32>, D::Error> {
    let number = Option::<i32>::deserialize(from)?;
    match number {
        Some(number) if number < LEAST => Err(de::Error::custom(format!("this is counted from {LEAST}"))),
        number => Ok(number),
    }
}

fn decode(text: &str) -> Result<String, FieldFault> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    let decoded = decoded.map_err(|_| FieldFault::new(text, "wrong_form", "a parameter is not UTF-8"))?;
    // No text of ours holds a NUL, and Postgres takes none.
    if decoded.contains('\0') {
        return Err(FieldFault::new(
            decoded.replace('\0', ""),
            "wrong_form",
            "a parameter holds a NUL",
        ));
    }
    Ok(decoded.into_owned())
}

/// What was sent for one parameter.
struct Values {
    name: String,
    values: Vec<String>,
}

impl Values {
    fn one(&self) -> Result<&str, Fault> {
        match self.values.as_slice() {
            [one] => Ok(one),
            _ => Err(Fault(
                FieldFault::new(&self.name, "duplicate", "this parameter was sent several times")
                    .value(self.values.join(", "))
                    .hint("send it once"),
            )),
        }
    }

    fn number<N: std::str::FromStr>(&self, what: &str) -> Result<N, Fault> {
        let text = self.one()?;
        text.parse()
            .map_err(|_| Fault(FieldFault::new(&self.name, "wrong_type", format!("this is not {what}")).value(text)))
    }
}

#[derive(Debug)]
struct Fault(FieldFault);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<M: fmt::Display>(message: M) -> Self {
        Fault(FieldFault::new("", "wrong_form", message.to_string()))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Fault(
            FieldFault::new(field, "unknown_parameter", "there is no parameter of that name here")
                .hint(format!("known: {}", expected.join(", "))),
        )
    }

    fn missing_field(field: &'static str) -> Self {
        Fault(FieldFault::new(field, "missing_parameter", "this parameter is needed"))
    }
}

/// All parameters, one after the other.
struct Parameters {
    rest: btree_map::IntoIter<String, Vec<String>>,
    current: Option<Values>,
}

impl<'de> MapAccess<'de> for Parameters {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some((name, values)) = self.rest.next() else {
            return Ok(None);
        };
        let key = seed.deserialize(name.clone().into_deserializer())?;
        self.current = Some(Values { name, values });
        Ok(Some(key))
    }

    /// Faults that a value's own type finds do not know the parameter's name; it is added here.
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let values = self
            .current
            .take()
            .ok_or_else(|| de::Error::custom("a value was asked for before its name"))?;
        let (name, value) = (values.name.clone(), values.values.join(", "));
        seed.deserialize(values).map_err(|Fault(mut fault)| {
            if fault.path.is_empty() {
                fault.path = name;
                fault = fault.value(value);
            }
            Fault(fault)
        })
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty, $what:literal;)+) => {$(
        fn $method<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            let number: $type = self.number($what)?;
            visitor.$visit(number)
        }
    )+};
}

impl<'de> de::Deserializer<'de> for Values {
    type Error = Fault;

    numbers! {
        deserialize_i8 visit_i8 i8, "a small whole number";
        deserialize_i16 visit_i16 i16, "a small whole number";
        deserialize_i32 visit_i32 i32, "a whole number";
        deserialize_i64 visit_i64 i64, "a whole number";
        deserialize_u8 visit_u8 u8, "a whole number from 0 to 255";
        deserialize_u16 visit_u16 u16, "a whole number from 0 to 65535";
        deserialize_u32 visit_u32 u32, "a whole number from 0";
        deserialize_u64 visit_u64 u64, "a whole number from 0";
        deserialize_f64 visit_f64 f64, "a number";
    }

    fn deserialize_bool<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.one()? {
            "true" | "1" => visitor.visit_bool(true),
            "false" | "0" => visitor.visit_bool(false),
            other => Err(Fault(
                FieldFault::new(&self.name, "wrong_type", "this is true or false").value(other),
            )),
        }
    }

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_str(self.one()?)
    }

    fn deserialize_option<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let name = self.name;
        let each = self.values.into_iter().map(|value| Values {
            name: name.clone(),
            values: vec![value],
        });
        visitor.visit_seq(SeqDeserializer::new(each))
    }

    fn deserialize_newtype_struct<V: de::Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: de::Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let text = self.one()?.to_owned();
        if !variants.contains(&text.as_str()) {
            let words = variants.join(", ");
            return Err(Fault(
                FieldFault::new(
                    &self.name,
                    "unknown_word",
                    format!("this is no {}", name.to_lowercase()),
                )
                .value(text)
                .hint(format!("one of: {words}")),
            ));
        }
        visitor.visit_enum(text.into_deserializer())
    }

    forward_to_deserialize_any! {
        f32 char str string bytes byte_buf unit unit_struct tuple tuple_struct map struct identifier ignored_any
        i128 u128
    }
}

impl<'de> IntoDeserializer<'de, Fault> for Values {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use trainyard_core::model::{JobId, Phase};

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(default)]
        state: Vec<Phase>,
        limit: Option<u32>,
        #[serde(default)]
        follow: bool,
        text: Option<String>,
        job: Option<JobId>,
    }

    #[test]
    fn lists_numbers_and_words_are_read() {
        let sample: Sample = parse("state=running&state=failed&limit=7&follow=true&text=a+b%20c").unwrap();
        assert_eq!(sample.state, [Phase::Running, Phase::Failed]);
        assert_eq!(
            (sample.limit, sample.follow, sample.text.as_deref()),
            (Some(7), true, Some("a b c"))
        );
        assert_eq!(parse::<Sample>("").unwrap().limit, None);
    }

    #[test]
    fn every_fault_names_the_parameter_and_the_value() {
        for (query, path, code) in [
            ("limit=many", "limit", "wrong_type"),
            ("limit=-1", "limit", "wrong_type"),
            ("limit=1&limit=2", "limit", "duplicate"),
            ("state=gone", "state", "unknown_word"),
            ("follow=maybe", "follow", "wrong_type"),
            ("job=job_1", "job", "wrong_form"),
            ("nonsense=1", "nonsense", "unknown_parameter"),
            ("text=%ff", "%ff", "wrong_form"),
            ("text=%00", "", "wrong_form"),
        ] {
            let fault = parse::<Sample>(query).unwrap_err();
            assert_eq!((fault.path.as_str(), fault.code.as_str()), (path, code), "{query}");
        }
    }
}
