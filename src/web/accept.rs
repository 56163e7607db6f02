//! `Accept`: which of the media types that are offered a client takes most gladly (RFC 9110, 12.5.1).

use axum::http::{HeaderMap, header};

/// The offered type of the highest quality; of equals the one that is named most exactly, then the first. `None`: the
/// client takes none of them. A client that says nothing takes the first.
pub fn best<'a>(headers: &HeaderMap, offered: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let sent = headers.get_all(header::ACCEPT).iter();
    let sent: Vec<&str> = sent.filter_map(|value| value.to_str().ok()).collect();
    let accept = match sent.join(",") {
        nothing if nothing.trim().is_empty() => "*/*".to_owned(),
        accept => accept,
    };
    let mut best = None;
    for offer in offered {
        let liked = liking(&accept, offer);
        if liked.0 > 0 && best.is_none_or(|(_, least)| liked > least) {
            best = Some((offer, liked));
        }
    }
    best.map(|(offer, _)| offer)
}

/// Whether this type is what the client takes most gladly where the other one is offered as well, and comes first.
pub fn prefers(headers: &HeaderMap, wanted: &str, first: &str) -> bool {
    best(headers, [first, wanted]) == Some(wanted)
}

/// Thousandths of quality, and how exactly the part that decides names the type: the most exact one does.
fn liking(accept: &str, offer: &str) -> (u16, u8) {
    let parts = accept.split(',').filter_map(|part| {
        let mut fields = part.split(';').map(str::trim);
        let range = fields.next().unwrap_or_default();
        let exact = match range.split_once('/') {
            _ if range.eq_ignore_ascii_case(offer) => 2,
            Some(("*", "*")) => 0,
            Some((family, "*"))
                if offer
                    .split('/')
                    .next()
                    .is_some_and(|own| own.eq_ignore_ascii_case(family)) =>
            {
                1
            }
            _ => return None,
        };
        let quality = fields.find_map(|field| field.strip_prefix("q=").or(field.strip_prefix("Q=")));
        let quality = quality.map_or(1.0, |quality| quality.parse::<f32>().unwrap_or(1.0));
        Some((exact, (quality.clamp(0.0, 1.0) * 1000.0) as u16))
    });
    parts.max().map_or((0, 0), |(exact, quality)| (quality, exact))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const OFFERED: [&str; 2] = ["application/json", "text/csv"];

    fn of(accept: &str) -> Option<&'static str> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
        best(&headers, OFFERED)
    }

    #[test]
    fn accept_is_read_as_browsers_and_programs_write_it() {
        for json in [
            "",
            "*/*",
            "application/json",
            "application/*;q=0.1",
            "text/html, application/json;q=0.5",
            "text/csv;q=0.4, application/json;q=0.5",
            "text/csv, application/json",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "text/csv;q=0, */*",
        ] {
            assert_eq!(of(json), Some(OFFERED[0]), "{json}");
        }
        for csv in [
            "text/*",
            "TEXT/CSV",
            "text/csv, */*",
            "text/csv; charset=utf-8; q=0.9, application/json;q=0.5",
            "application/json;q=0, */*;q=0.1",
        ] {
            assert_eq!(of(csv), Some(OFFERED[1]), "{csv}");
        }
        for none in [
            "text/html",
            "image/*",
            "application/json;q=0",
            "application/json;q=0.000",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(best(&HeaderMap::new(), OFFERED), Some(OFFERED[0]));
    }
}
