//! Checks a job document and unpacks its inline code, so that a script can be run by hand:
//! `cargo run -p trainyard-core --example unpack -- examples/train/job.yaml /tmp/train`.

use std::{error::Error, fs, path::Path};

use trainyard_core::document::{check_job, job::Code};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [document, folder] = arguments.as_slice() else {
        return Err("usage: unpack JOB.yaml FOLDER".into());
    };
    let checked = check_job(&fs::read_to_string(document)?, None);
    let job = checked.map_err(|faults| faults.iter().map(|fault| format!("\n{fault}")).collect::<String>())?;
    let Some(Code::Inline(files)) = job.code else {
        return Err("the document has no inline code".into());
    };
    for (path, text) in files {
        // The checker let no path out of the folder.
        let path = Path::new(folder).join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new(folder)))?;
        fs::write(&path, text)?;
        println!("{}", path.display());
    }
    Ok(())
}
