//! Ids of children that their parents give none (rule P36).

use uuid::Uuid;

use crate::{CallHash, Generation, InstanceId, InstanceUid, Run};

/// The id of the child that a call starts: a UUID that follows from the parent, its run and generation, and the call. So a
/// start that is made again meets the same child, and a parent that is run again gets new ones. Never changes.
#[must_use]
pub fn child_id(parent: InstanceUid, run: Run, generation: Generation, call: CallHash) -> InstanceId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"everstep-child-1");
    hasher.update(parent.0.as_bytes());
    hasher.update(&run.0.to_le_bytes());
    hasher.update(&generation.0.to_le_bytes());
    hasher.update(&call.0);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    let uuid: Uuid = uuid::Builder::from_custom_bytes(bytes).into_uuid();
    InstanceId::new(uuid.to_string()).expect("a UUID is a valid instance id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p36_the_id_of_a_child_follows_from_its_parent_and_call() {
        let parent = InstanceUid(Uuid::from_u128(7));
        let id = |run, generation, call| {
            child_id(parent, Run(run), Generation(generation), CallHash([call; 16])).to_string()
        };
        assert_eq!(id(1, 1, 1), "c689509e-724f-8e40-be68-5fb52dddbfd4");
        assert_eq!(id(1, 1, 1), id(1, 1, 1));
        let others = [id(2, 1, 1), id(1, 2, 1), id(1, 1, 2)];
        assert!(others.iter().all(|other| *other != id(1, 1, 1)), "{others:?}");
    }
}
