//! Only the lines in which one rank of `mpirun` speaks. What is left out stays as a run without lines, so that whoever reads
//! gets further even where nothing is wanted, and can tell how much was looked at.

use trainyard_core::catch::tags::Speaker;

use super::run::{Run, RunBody};

impl Run {
    /// The first lines, as long as all of them are wanted or none is, and the rest. Gaps are everybody's.
    pub fn sift(self, speaker: &Speaker) -> (Run, Option<Run>) {
        let data = match &self.body {
            RunBody::Lines(data) => data,
            RunBody::Cut { text, .. } | RunBody::Unfinished { text, .. } if !speaker.is_in(text) => {
                return (self.passed(), None);
            }
            _ => return (self, None),
        };
        let Some(tag) = speaker.find(data) else {
            return (self.passed(), None);
        };
        if let Some(end) = memchr::memrchr(b'\n', &data[..tag]) {
            let (others, rest) = self.split(usize::MAX, end + 1);
            return (others.passed(), rest);
        }
        let mut wanted = 0;
        for end in memchr::memchr_iter(b'\n', data) {
            if !speaker.is_in(&data[wanted..end]) {
                break;
            }
            wanted = end + 1;
        }
        self.split(usize::MAX, wanted)
    }

    fn passed(self) -> Run {
        Run {
            body: RunBody::Passed,
            ..self
        }
    }

    /// Bytes of the stream that were looked at and are not wanted.
    pub fn passed_bytes(&self) -> u64 {
        match self.body {
            RunBody::Passed => self.end - self.offset,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn run(body: RunBody) -> Run {
        let size = match &body {
            RunBody::Lines(text) | RunBody::Cut { text, .. } | RunBody::Unfinished { text, .. } => text.len() as u64,
            _ => 0,
        };
        Run {
            at: 7,
            offset: 100,
            end: 100 + size,
            first_line: 5,
            body,
        }
    }

    /// (first line, offset, text; none where lines were passed) of each part.
    fn parts(body: RunBody, rank: u32) -> Vec<(u64, u64, Option<String>)> {
        let speaker = Speaker::new(rank);
        let mut parts = Vec::new();
        let mut rest = Some(run(body));
        let mut at = 100;
        while let Some(run) = rest {
            let (first, more) = run.sift(&speaker);
            assert_eq!((first.offset, first.at), (at, 7), "nothing is left out or seen twice");
            at = first.end;
            let text = match &first.body {
                RunBody::Passed => None,
                RunBody::Lines(text) | RunBody::Cut { text, .. } | RunBody::Unfinished { text, .. } => {
                    Some(String::from_utf8_lossy(text).into_owned())
                }
                RunBody::Gap(_) => Some("gap".into()),
            };
            parts.push((first.first_line, first.offset, text));
            rest = more;
        }
        parts
    }

    #[test]
    fn lines_of_a_rank_keep_their_numbers_and_places() {
        let text = "[1,0]<stdout>:a\n[1,3]<stdout>:b\n[1,0]<stdout>:x[1,3]<stdout>:y\nplain\n[1,3]<stderr>:c\n";
        let found = parts(RunBody::Lines(Bytes::from(text)), 3);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            found,
            [
                (5, 100, None),
                (6, 116, some("[1,3]<stdout>:b\n[1,0]<stdout>:x[1,3]<stdout>:y\n")),
                (8, 163, None),
                (9, 169, some("[1,3]<stderr>:c\n")),
            ]
        );
        assert_eq!(parts(RunBody::Lines(Bytes::from(text)), 2), [(5, 100, None)]);
    }

    #[test]
    fn a_line_of_its_own_is_wanted_or_passed_whole_and_a_gap_is_everybodys() {
        let text = Bytes::from("[1,1]<stdout>:half");
        for body in [
            RunBody::Cut {
                text: text.clone(),
                missing: 9,
            },
            RunBody::Unfinished {
                text: text.clone(),
                missing: 0,
            },
        ] {
            assert_eq!(parts(body.clone(), 1)[0].2.as_deref(), Some("[1,1]<stdout>:half"));
            assert_eq!(parts(body, 0), [(5, 100, None)]);
        }
        let gap = super::super::chunk::Gap {
            offset: 100,
            at: 7,
            reason: "it was lost".into(),
            bytes: None,
        };
        assert_eq!(parts(RunBody::Gap(gap), 0), [(5, 100, Some("gap".into()))]);
    }
}
