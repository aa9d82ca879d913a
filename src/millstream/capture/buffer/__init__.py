"""Change buffers: `slices` names them and selects from them, `buffer_table` creates them, `prune` empties them."""
