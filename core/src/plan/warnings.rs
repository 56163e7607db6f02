//! What a document asks for that means nothing where the job would run: taken, since another cluster reads it, and told.

use crate::{
    document::job::{JobDocument, Volume, VolumeSource},
    model::{Provider, RestartOwner},
};

/// In sentences without a full stop, each with the fields that it is about.
pub fn warnings(document: &JobDocument, provider: Provider) -> Vec<String> {
    if provider != Provider::Local {
        return Vec::new();
    }
    let mut told = Vec::new();
    if let owner @ (RestartOwner::Operator | RestartOwner::JobSet) = document.restart.owner {
        told.push(format!(
            "A local cluster has no {owner}, so nobody restarts the job; leave it out, and Trainyard does (restart.owner)"
        ));
    }
    if let Some(queue) = &document.queue {
        told.push(format!(
            "A local cluster has no queue '{queue}'; its jobs start by priority and age alone (queue)"
        ));
    }
    let mut tell = |fields: Vec<String>, why: &str| {
        if !fields.is_empty() {
            told.push(format!("{why} ({})", fields.join(", ")));
        }
    };
    let images = (document.roles.iter().enumerate()).filter(|(_, role)| role.image.is_some());
    tell(
        images.map(|(index, _)| format!("roles[{index}].image")).collect(),
        "A local cluster runs processes of its machine and no image; what they need has to be installed there",
    );
    tell(
        volumes(document, "source.claim", |volume| {
            matches!(volume.source, VolumeSource::Claim { .. })
        }),
        "A local cluster has no claims, so the job would fail at its start; use source.job or source.hostPath",
    );
    tell(
        volumes(document, "mountPath", |volume| match &volume.source {
            VolumeSource::Claim { .. } => false,
            VolumeSource::HostPath { path } => *path != volume.mount_path,
            VolumeSource::Job {} | VolumeSource::SecretRef(_) => true,
        }),
        "A local cluster mounts nothing; where the folder lies stands in TRAINYARD_VOLUME_<NAME>",
    );
    told
}

/// That field of each volume of the kind.
fn volumes(document: &JobDocument, field: &str, kind: impl Fn(&Volume) -> bool) -> Vec<String> {
    let mut fields = Vec::new();
    for (index, role) in document.roles.iter().enumerate() {
        let places = (role.volumes.iter().enumerate()).filter(|(_, volume)| kind(volume));
        fields.extend(places.map(|(place, _)| format!("roles[{index}].volumes[{place}].{field}")));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::check_job;

    const ALL: &str = "
apiVersion: trainyard.dev/v1
kind: Job
name: all
queue: gold
restart: { owner: jobset }
roles:
  - name: master
    command: [a]
    image: a:1
  - name: worker
    command: [a]
    image: a:1
    volumes:
      - { name: a, mountPath: /a, source: { job: {} } }
      - { name: b, mountPath: /b, source: { hostPath: { path: /b } } }
      - { name: c, mountPath: /c, source: { hostPath: { path: /data } } }
      - { name: d, mountPath: /d, source: { claim: { name: d } } }
";

    #[test]
    fn what_a_machine_does_not_read_is_told_once_with_every_place_of_it() {
        let told = warnings(&check_job(ALL, None).unwrap(), Provider::Local);
        let fields: Vec<&str> = told.iter().map(|told| told.rsplit_once(" (").unwrap().1).collect();
        assert_eq!(
            fields,
            [
                "restart.owner)",
                "queue)",
                "roles[0].image, roles[1].image)",
                "roles[1].volumes[3].source.claim)",
                "roles[1].volumes[0].mountPath, roles[1].volumes[2].mountPath)",
            ]
        );
        assert!(told[0].contains("has no jobset"), "{told:?}");
        assert!(told[1].contains("'gold'"), "{told:?}");
    }

    #[test]
    fn nothing_is_told_of_what_has_its_meaning() {
        let document = check_job(ALL, None).unwrap();
        assert_eq!(warnings(&document, Provider::Eks), Vec::<String>::new());
        let plain = "apiVersion: trainyard.dev/v1\nkind: Job\nname: a\nrestart: { owner: torchelastic }\nroles: [{ name: a, command: [a] }]";
        assert_eq!(
            warnings(&check_job(plain, None).unwrap(), Provider::Local),
            Vec::<String>::new()
        );
    }
}
