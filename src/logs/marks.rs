//! The times inside a chunk: where each flush began, and when.
//!
//! Written as pairs of varints (bytes since the mark before, milliseconds since it), since a quiet stream that is
//! followed for a day has a million of them. The first flush begins at byte 0 at the chunk's `first_at`.

/// Where a flush begins within a chunk's bytes, and its time in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub byte: u64,
    pub at: i64,
}

/// The flushes of a chunk, the first included. Marks that can't be read end the list: times are then too early,
/// and no byte is lost.
pub fn decode(first_at: i64, marks: &[u8]) -> Vec<Mark> {
    let mut mark = Mark { byte: 0, at: first_at };
    let mut all = vec![mark];
    let mut rest = marks;
    while let Some(bytes) = varint(&mut rest) {
        let Some(millis) = varint(&mut rest) else { break };
        mark.byte += bytes;
        mark.at += millis as i64;
        all.push(mark);
    }
    all
}

/// The reverse of [`decode`]: the first mark's time is the chunk's `first_at` and is not in the bytes.
pub fn encode(marks: &[Mark]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for pair in marks.windows(2) {
        put_varint(&mut bytes, pair[1].byte - pair[0].byte);
        put_varint(&mut bytes, (pair[1].at - pair[0].at).max(0) as u64);
    }
    bytes
}

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_the_way_out_and_back() {
        let marks = [
            Mark { byte: 0, at: 1000 },
            Mark { byte: 5, at: 1050 },
            Mark {
                byte: 1 << 40,
                at: 1 << 41,
            },
        ];
        assert_eq!(decode(1000, &encode(&marks)), marks);
        assert_eq!(decode(7, &[]), [Mark { byte: 0, at: 7 }]);
    }

    #[test]
    fn torn_marks_end_the_list_and_nothing_else() {
        let bytes = encode(&[Mark { byte: 0, at: 0 }, Mark { byte: 300, at: 300 }]);
        for cut in 0..bytes.len() {
            assert_eq!(decode(0, &bytes[..cut]).len(), 1);
        }
        assert_eq!(decode(0, &[0xff; 32]).len(), 1);
    }
}
