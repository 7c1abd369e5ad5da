//! Projects of Object Manager and key files: a file is read, or is rejected with a reason.

use fodo_clu::keys::KeyFile;
use fodo_clu::limit;
use fodo_clu::omp::OmProject;

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    match OmProject::parse(bytes) {
        Ok(project) => {
            assert!(project.clus.len() <= limit::PROJECT_CLUS_MAX);
            assert!(project.objects.len() <= limit::PROJECT_OBJECTS_MAX);
            let n_features = project.objects.iter().map(|object| object.interface.features.len()).sum::<usize>();
            assert!(n_features <= limit::PROJECT_FEATURES_MAX);
            let keys = KeyFile { project: project.key, initial_iv: None, pin: None };
            assert_eq!(KeyFile::parse(&keys.to_text()), Ok(keys));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match KeyFile::parse(&String::from_utf8_lossy(bytes)) {
        Ok(keys) => assert_eq!(KeyFile::parse(&keys.to_text()), Ok(keys)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
