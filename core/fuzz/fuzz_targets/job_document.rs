//! Any text: a document that reads the same once written, or faults; and never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trainyard_core::{
    catch::Catcher,
    document::{Format, check_job, to_yaml},
};

fuzz_target!(|text: &str| {
    for format in [Format::Yaml, Format::Json] {
        match check_job(text, Some(format)) {
            Ok(document) => assert_eq!(check_job(&to_yaml(&document), Some(Format::Yaml)), Ok(document)),
            Err(faults) => assert!(!faults.is_empty()),
        }
    }
    if let Ok(catcher) = Catcher::new(&Default::default()) {
        catcher.catch(text.as_bytes());
    }
});
