"""The samplers: classes derived from `ingot.sampling.sampler.Sampler`, grouped by what they do."""
