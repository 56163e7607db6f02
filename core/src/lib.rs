//! The pure part of Trainyard.
