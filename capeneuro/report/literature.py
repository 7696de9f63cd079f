"""Publications that methods rest on, as text with DOI and as BibTeX."""

from collections.abc import Sequence
from typing import NamedTuple


class Reference(NamedTuple):
    """One publication, under the words that cite it."""

    cited: str
    authors: str
    """Separated by `` and ``, family name first, as BibTeX has them."""
    year: int
    title: str
    where: str
    kind: str
    """BibTeX's: article, inproceedings or phdthesis."""
    doi: str = ""

    @property
    def key(self) -> str:
        """Of the BibTeX entry."""
        first = self.authors.split(",", 1)[0].lower()
        return f"{first.replace(' ', '')}{self.year}{self.title.split()[0].lower()}"

    @property
    def people(self) -> str:
        """Authors as a text has them: the first three."""
        names = self.authors.split(" and ")
        more = " et al." if len(names) > 3 else ""
        return "; ".join(names[:3]) + more

    @property
    def bibtex(self) -> str:
        """The entry."""
        place = {"article": "journal", "phdthesis": "school"}.get(
            self.kind, "booktitle"
        )
        fields = {
            "author": self.authors,
            "title": f"{{{self.title}}}",
            place: self.where,
            "year": str(self.year),
            "doi": self.doi,
        }
        lines = [f"  {name} = {{{text}}}," for name, text in fields.items() if text]
        return "\n".join([f"@{self.kind}{{{self.key},", *lines, "}"])


KNOWN = (
    Reference(
        "Abraham et al. 2014",
        "Abraham, Alexandre and Pedregosa, Fabian and Eickenberg, Michael and Gervais, "
        "Philippe and Mueller, Andreas and Kossaifi, Jean and Gramfort, Alexandre and "
        "Thirion, Bertrand and Varoquaux, Gael",
        2014,
        "Machine Learning for Neuroimaging with Scikit-Learn",
        "Frontiers in Neuroinformatics 8, 14",
        "article",
        "10.3389/fninf.2014.00014",
    ),
    Reference(
        "Imtiaz & Sarwate 2018",
        "Imtiaz, Hafiz and Sarwate, Anand D.",
        2018,
        "Distributed Differentially Private Algorithms for Matrix and Tensor "
        "Factorization",
        "IEEE Journal of Selected Topics in Signal Processing 12(6), 1449-1464",
        "article",
        "10.1109/JSTSP.2018.2877842",
    ),
    Reference(
        "Imtiaz et al. 2021",
        "Imtiaz, Hafiz and Mohammadi, Jafar and Silva, Rogers and Baker, Bradley and "
        "Plis, Sergey M. and Sarwate, Anand D. and Calhoun, Vince D.",
        2021,
        "A Correlated Noise-Assisted Decentralized Differentially Private Estimation "
        "Protocol, and its Application to fMRI Source Separation",
        "IEEE Transactions on Signal Processing 69, 6355-6370",
        "article",
        "10.1109/TSP.2021.3126546",
    ),
    Reference(
        "Tasnim et al. 2023",
        "Tasnim, Naima and Mohammadi, Jafar and Sarwate, Anand D. and Imtiaz, Hafiz",
        2023,
        "Approximating Functions with Approximate Privacy for Applications in Signal "
        "Estimation and Learning",
        "Entropy 25(5), 825",
        "article",
        "10.3390/e25050825",
    ),
    Reference(
        "Imtiaz 2020",
        "Imtiaz, Hafiz",
        2020,
        "Decentralized Differentially Private Algorithms for Matrix and Tensor "
        "Factorization",
        "Rutgers, The State University of New Jersey",
        "phdthesis",
    ),
    Reference(
        "Dong, Roth & Su 2022",
        "Dong, Jinshuo and Roth, Aaron and Su, Weijie J.",
        2022,
        "Gaussian Differential Privacy",
        "Journal of the Royal Statistical Society B 84(1), 3-37",
        "article",
        "10.1111/rssb.12454",
    ),
    Reference(
        "Balle & Wang 2018",
        "Balle, Borja and Wang, Yu-Xiang",
        2018,
        "Improving the Gaussian Mechanism for Differential Privacy: Analytical "
        "Calibration and Optimal Denoising",
        "Proceedings of the 35th International Conference on Machine Learning, 394-403",
        "inproceedings",
        "10.48550/arXiv.1805.06530",
    ),
    Reference(
        "Bonawitz et al. 2017",
        "Bonawitz, Keith and Ivanov, Vladimir and Kreuter, Ben and Marcedone, Antonio "
        "and McMahan, H. Brendan and Patel, Sarvar and Ramage, Daniel and Segal, Aaron "
        "and Seth, Karn",
        2017,
        "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
        "Proceedings of the 2017 ACM Conference on Computer and Communications "
        "Security, 1175-1191",
        "inproceedings",
        "10.1145/3133956.3133982",
    ),
    Reference(
        "Steinke et al. 2023",
        "Steinke, Thomas and Nasr, Milad and Jagielski, Matthew",
        2023,
        "Privacy Auditing with One (1) Training Run",
        "Advances in Neural Information Processing Systems 36",
        "inproceedings",
        "10.48550/arXiv.2305.08846",
    ),
    Reference(
        "Abadi et al. 2016",
        "Abadi, Martin and Chu, Andy and Goodfellow, Ian and McMahan, H. Brendan and "
        "Mironov, Ilya and Talwar, Kunal and Zhang, Li",
        2016,
        "Deep Learning with Differential Privacy",
        "Proceedings of the 2016 ACM Conference on Computer and Communications "
        "Security, 308-318",
        "inproceedings",
        "10.1145/2976749.2978318",
    ),
    Reference(
        "Bell & Sejnowski 1995",
        "Bell, Anthony J. and Sejnowski, Terrence J.",
        1995,
        "An Information-Maximization Approach to Blind Separation and Blind "
        "Deconvolution",
        "Neural Computation 7(6), 1129-1159",
        "article",
        "10.1162/neco.1995.7.6.1129",
    ),
    Reference(
        "Lee et al. 1999",
        "Lee, Te-Won and Girolami, Mark and Sejnowski, Terrence J.",
        1999,
        "Independent Component Analysis Using an Extended Infomax Algorithm for Mixed "
        "Subgaussian and Supergaussian Sources",
        "Neural Computation 11(2), 417-441",
        "article",
        "10.1162/089976699300016719",
    ),
    Reference(
        "Himberg et al. 2004",
        "Himberg, Johan and Hyvarinen, Aapo and Esposito, Fabrizio",
        2004,
        "Validating the Independent Components of Neuroimaging Time Series via "
        "Clustering and Visualization",
        "NeuroImage 22(3), 1214-1222",
        "article",
        "10.1016/j.neuroimage.2004.03.027",
    ),
    Reference(
        "Hotelling 1936",
        "Hotelling, Harold",
        1936,
        "Relations Between Two Sets of Variates",
        "Biometrika 28(3-4), 321-377",
        "article",
        "10.1093/biomet/28.3-4.321",
    ),
    Reference(
        "Anandkumar et al. 2014",
        "Anandkumar, Animashree and Ge, Rong and Hsu, Daniel and Kakade, Sham M. and "
        "Telgarsky, Matus",
        2014,
        "Tensor Decompositions for Learning Latent Variable Models",
        "Journal of Machine Learning Research 15, 2773-2832",
        "article",
        "10.48550/arXiv.1210.7559",
    ),
    Reference(
        "Zhang et al. 2012",
        "Zhang, Jun and Zhang, Zhenjie and Xiao, Xiaokui and Yang, Yin and Winslett, "
        "Marianne",
        2012,
        "Functional Mechanism: Regression Analysis under Differential Privacy",
        "Proceedings of the VLDB Endowment 5(11), 1364-1375",
        "article",
        "10.14778/2350229.2350253",
    ),
    Reference(
        "Kingma & Ba 2015",
        "Kingma, Diederik P. and Ba, Jimmy",
        2015,
        "Adam: A Method for Stochastic Optimization",
        "International Conference on Learning Representations",
        "inproceedings",
        "10.48550/arXiv.1412.6980",
    ),
)


def cited(text: str) -> Sequence[Reference]:
    """Publications that a text, as HTML, cites; in the order of authors."""
    plain = text.replace("&amp;", "&")
    found = [one for one in KNOWN if one.cited in plain]
    return sorted(found, key=lambda one: (one.authors, one.year))
