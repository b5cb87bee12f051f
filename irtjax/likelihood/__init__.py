"""What methods maximise: a problem, its likelihood at nodes, and the nodes."""
