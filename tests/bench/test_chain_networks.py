"""The networks that are studied as chains hold the convolutions that they are named after."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("torch")

import itertools

from oocdnn.bench.sets import SETS
from oocdnn.bench.studies.chain_networks import NETWORKS, shapes


@pytest.mark.parametrize(("name", "beside"), [("vgg16", 0), ("resnet50", 4)])
def test_a_chain_has_all_convolutions_but_those_beside_it(name, beside):
    links = Counter(
        (x[1], x[2], spec.k, spec.taps, spec.stride) for spec, x, _, _ in shapes(NETWORKS[name], 2)
    )
    wanted = Counter()
    for layer in SETS[name].layers:
        key = (layer.c, layer.extents[0], layer.k, layer.taps[0], layer.stride[0])
        wanted[key] += SETS[name].times_of(layer)
    assert links <= wanted
    assert (wanted - links).total() == beside
    assert all(key[3] == 1 for key in wanted - links)


@pytest.mark.parametrize(("name", "last"), [("vgg16", 512), ("resnet50", 2048)])
def test_each_reads_what_the_one_before_it_gives(name, last):
    found = list(shapes(NETWORKS[name], 2))
    assert found[0][1] == (2, 3, 224, 224)
    assert found[-1][3] == (2, last, 7, 7)
    for (_, _, _, z), (_, x, _, _) in itertools.pairwise(found):
        assert z == x


def test_blocks_add_what_they_begin_with():
    found = list(shapes(NETWORKS["resnet50"], 2))
    adding = [i for i, (spec, *_) in enumerate(found) if spec.residual is not None]
    assert len(adding) == 12
    for i in adding:
        spec, _, y, _ = found[i]
        assert spec.residual == i - 3
        assert found[i - 3][3] == y == found[i - 2][1]
